// Shared prefixes as levels of attention (layer plan): which of a batch's prefix_groups are worth
// reading once for all their requests.
//
// A level is a range of keys that consecutive requests read from the same pages. All of its query
// rows pass over those keys together; each request reads the rest of its keys by itself, and the
// states of its levels and of its own part are joined by lse (kernels/merge_states). A request's
// levels lie end to end from its first key on; its own keys are the rest.
//
//   requests A B C D, pages of 16 keys, groups {A B C D: 10 pages}, {A B: 14 pages}
//     level 0    A B C D   keys [0, 160)
//     level 1    A B       keys [160, 224)
//     own keys   from 224 (A, B) or 160 (C, D)
//
// Groups are hints: one that does not nest, does not pay or does not fit is left out, and its
// requests read those keys by themselves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/batch.hpp>

#include "attention/mask.hpp"

namespace attune::plan {

/// What work costs on one device for one layer, in any unit, a KV head. `rows` are query rows:
/// tokens times the query heads of a KV head.
struct CascadeCosts {
  double decode_read = 1.0;  ///< a key, once for a request of one token
  double decode_row = 1.0;   ///< a key met by one row of it
  double block_read = 1.0;   ///< a key, once for a block of rows
  double block_row = 1.0;    ///< a key met by one row of a block
  double merge_row = 1.0;    ///< one more state of one row, written and joined
  std::int64_t rows_a_token = 1;
  std::int64_t block_rows = 1;  ///< most rows that a block holds
  bool decodes = true;          ///< requests of one token take the decode costs
  std::int64_t units = 1;       ///< items that every block makes: KV heads
  std::int64_t workers = 1;
  std::int64_t least_keys = 1;  ///< of an item: a level is cut no finer to give every worker some
  double any_level = 0.0;       ///< of a batch that has levels at all: launches
  /// A level must cost less than this share of what it replaces: what the figures miss.
  double most_of_flat = 0.9;
};

struct SharedLevel {
  std::int64_t first_request = 0;
  std::int64_t num_requests = 0;
  std::int64_t first_token = 0;  ///< rows of q, all of the requests'
  std::int64_t num_tokens = 0;
  attention::KeyRange keys{};  ///< key indices, the same in each of the requests
  std::int32_t outer = -1;     ///< the level that ends where this one begins
};

struct Cascade {
  std::vector<SharedLevel> levels;      ///< outer ones first
  std::vector<std::int32_t> innermost;  ///< [batch] a request's last level, -1 = none; or empty

  [[nodiscard]] std::int32_t level_of(std::int64_t request) const {
    return innermost.empty() ? -1 : innermost[static_cast<std::size_t>(request)];
  }
  /// The first key that a request reads by itself.
  [[nodiscard]] std::int64_t own_begin(std::int64_t request) const {
    const std::int32_t level = level_of(request);
    return level < 0 ? 0 : levels[static_cast<std::size_t>(level)].keys.end;
  }
};

enum class CascadeMode : std::uint8_t {
  off,
  by_cost,
  always,  ///< every group that nests and fits, for tests
};

/// `visible`: the key indices each query token sees. `max_states`: rows' states that the workspace
/// holds, each of one token and query head; a request with n levels takes n + 1 a row.
[[nodiscard]] Cascade find_levels(const BatchView& batch,
                                  std::span<const attention::KeyRange> visible,
                                  const CascadeCosts& costs, CascadeMode mode,
                                  std::int64_t max_states);

}  // namespace attune::plan
