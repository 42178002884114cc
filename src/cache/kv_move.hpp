// Closing up an accepted branch of draft tokens: its keys and values lie between those of branches
// that were not accepted, and a context has no gaps (layer cache).
//
//   path {0, 2, 5} of a tree behind a context of n tokens: moves slot(n + 2) → slot(n + 1),
//   slot(n + 5) → slot(n + 2). A path runs forwards, so a token never lands on one that is yet to
//   move. Copies bytes as they are stored, whatever their type; the host must be able to reach
//   them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "cache/request_pages.hpp"

namespace attune::cache {

/// Slots are page * page_size + place, as in LayerCall::slot_mapping.
struct SlotMove {
  std::int64_t from = 0;
  std::int64_t to = 0;
};

/// The moves that bring the tokens of `path` (ascending places behind `context_len`) together;
/// tokens that lie right already are left out.
void path_moves(std::span<const std::int32_t> path, std::int64_t context_len,
                const RequestPages& pages, std::int32_t page_size, std::vector<SlotMove>& moves);

/// Pair after pair, in one cache tensor (LayerCall::k_cache or v_cache). Slots outside the cache
/// are refused before anything moves.
Status move_tokens(const TensorView& cache, KvLayout layout, std::span<const SlotMove> moves);

}  // namespace attune::cache
