// Layers whose keys live equally long share page ids: one pool for full attention, one for each
// window (layer runtime).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/cache.hpp>

#include "attention/mask.hpp"
#include "model/attention_groups.hpp"

namespace attune::runtime {

struct CacheGroup {
  attention::MaskRule rule;
  std::vector<int> attention_groups;   ///< indices into Model::groups()
  std::vector<int> compressed_groups{};  ///< likewise: of those whose compressed keys are here
  std::vector<int> layers;
  /// The first page that a request keeps of a window begins at a multiple of this.
  std::int64_t granule = 1;

  /// Keys before this position are not needed once every later query sits at `next` or beyond.
  [[nodiscard]] std::int64_t first_kept(std::int64_t next) const {
    return attention::first_needed_key(rule, next) / granule * granule;
  }
  /// Keys are forgotten as the request grows.
  [[nodiscard]] bool bounded() const { return rule.window_left >= 0 || rule.attention_chunk > 0; }
};

/// Groups of softmax layers with a cache, full attention first where there is any. Compressed keys
/// (dsv4) live as long as those of full attention.
[[nodiscard]] std::vector<CacheGroup> cache_groups(std::span<const model::AttentionGroup> groups,
                                                   std::int64_t granule = 1);

/// The most pages one request ever holds in `group`: those of `max_len` tokens, or of a window and
/// one step of at most `max_step` tokens.
[[nodiscard]] std::int64_t max_pages_per_request(const CacheGroup& group, std::int64_t max_len,
                                                 std::int64_t max_step, std::int32_t page_size);

}  // namespace attune::runtime
