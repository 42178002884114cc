#include "attention/prefix_groups.hpp"

#include <algorithm>

namespace attune::attention {
namespace {

/// Leading full pages that request i and its successor have in common.
std::int32_t common_pages(const BatchView& batch, std::int64_t i) {
  if (batch.first_kv_position(i) != batch.first_kv_position(i + 1)) return 0;
  const auto full = std::min(batch.kv_len(i), batch.kv_len(i + 1)) / batch.page_size;
  const std::int32_t* const mine =
      batch.kv_indices.data() + batch.kv_indptr[static_cast<std::size_t>(i)];
  const std::int32_t* const next =
      batch.kv_indices.data() + batch.kv_indptr[static_cast<std::size_t>(i) + 1];
  return static_cast<std::int32_t>(std::mismatch(mine, mine + full, next).first - mine);
}

}  // namespace

void find_prefix_groups(const BatchView& batch, std::vector<PrefixGroup>& groups) {
  groups.clear();
  if (batch.source != KvSource::paged) return;
  // The intervals of equal prefixes form a tree, as those of a suffix array do. Open ones, from the
  // outside in, each with more pages than the one around it:
  std::vector<PrefixGroup> open;
  const std::int64_t last = batch.batch_size() - 1;
  for (std::int64_t i = 0; i <= last; ++i) {
    const std::int32_t pages = i < last ? common_pages(batch, i) : 0;
    auto first = static_cast<std::int32_t>(i);
    while (!open.empty() && open.back().num_pages > pages) {
      PrefixGroup closed = open.back();
      open.pop_back();
      closed.num_requests = static_cast<std::int32_t>(i) - closed.first_request + 1;
      groups.push_back(closed);
      first = closed.first_request;
    }
    if (pages > 0 && (open.empty() || open.back().num_pages < pages))
      open.push_back({.first_request = first, .num_requests = 0, .num_pages = pages});
  }
  // Inner groups were closed first.
  std::reverse(groups.begin(), groups.end());
}

}  // namespace attune::attention
