#include "runtime/cache_groups.hpp"

#include <algorithm>

#include "base/math.hpp"

namespace attune::runtime {

std::vector<CacheGroup> cache_groups(std::span<const model::AttentionGroup> groups,
                                     std::int64_t granule) {
  std::vector<CacheGroup> found;
  const auto with_rule = [&](const attention::MaskRule& rule) -> CacheGroup& {
    for (CacheGroup& group : found)
      if (group.rule.window_left == rule.window_left &&
          group.rule.attention_chunk == rule.attention_chunk)
        return group;
    found.push_back({.rule = rule,
                     .attention_groups = {},
                     .compressed_groups = {},
                     .layers = {},
                     .granule = granule});
    return found.back();
  };
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const AttentionSpec& spec = groups[g].spec;
    if (groups[g].encoder || is_linear(spec.variant) || spec.kind != AttentionKind::decoder)
      continue;
    const attention::MaskRule rule{
        .causal = true, .window_left = spec.window_left, .attention_chunk = spec.attention_chunk};
    CacheGroup& group = with_rule(rule);
    group.attention_groups.push_back(static_cast<int>(g));
    group.layers.insert(group.layers.end(), groups[g].layers.begin(), groups[g].layers.end());
    if (spec.compress_ratio > 0)
      with_rule({.causal = true}).compressed_groups.push_back(static_cast<int>(g));
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const CacheGroup& c) { return !c.bounded(); });
  return found;
}

std::int64_t max_pages_per_request(const CacheGroup& group, std::int64_t max_len,
                                   std::int64_t max_step, std::int32_t page_size) {
  std::int64_t tokens = max_len;
  if (group.bounded()) {
    const std::int64_t window =
        group.rule.window_left >= 0 ? group.rule.window_left : group.rule.attention_chunk - 1;
    // The first needed key may be the last of its page, the last new one the first of its own.
    tokens =
        std::min(tokens, window + max_step + std::max<std::int64_t>(page_size, group.granule) - 1);
  }
  return base::ceil_div<std::int64_t>(tokens, page_size);
}

}  // namespace attune::runtime
