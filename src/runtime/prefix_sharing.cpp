#include "runtime/prefix_sharing.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/math.hpp"

namespace attune::runtime {

Result<std::unique_ptr<PrefixSharing>> PrefixSharing::make(const Setup& setup,
                                                           std::span<const CacheGroup> groups,
                                                           std::span<PagePool> pools) {
  PrefixCacheOptions options{.page_size = pools.empty() ? 1 : pools[0].page_size(),
                             .pools = {},
                             .policy = setup.options.policy,
                             .granule = setup.granule,
                             .needs_checkpoints = setup.state_bytes > 0,
                             .max_checkpoint_bytes = setup.options.checkpoint_bytes};
  if (pools.empty()) options.page_size = static_cast<std::int32_t>(setup.granule);
  for (std::size_t g = 0; g < groups.size(); ++g)
    options.pools.push_back({.pool = &pools[g],
                             .window_left = groups[g].rule.window_left,
                             .attention_chunk = groups[g].rule.attention_chunk});
  Result<PrefixCache> cache = PrefixCache::make(std::move(options));
  if (!cache.ok()) return cache.status();
  std::unique_ptr<PrefixSharing> sharing(new PrefixSharing(setup, std::move(*cache), pools));
  sharing->interval_ = setup.options.checkpoint_interval;
  if (sharing->interval_ == 0 && !pools.empty()) {
    const std::int64_t kept = std::max<std::int64_t>(
        setup.options.checkpoint_bytes / std::max<std::int64_t>(setup.state_bytes, 1), 1);
    const std::int64_t tokens = std::int64_t{pools[0].num_pages()} * pools[0].page_size();
    sharing->interval_ = base::ceil_div(tokens, kept);
  }
  return sharing;
}

void PrefixSharing::match(Request& request) {
  require(request.computed == 0 && !request.prefix.lock.held(), "a request that starts");
  // The newest token is left to compute, and its logits with it.
  const std::int64_t most = std::min({request.num_tokens() - 1, request.first_wanted(),
                                      setup_.batch_invariant ? request.prompt_len - 1 : INT64_MAX});
  PrefixMatch match =
      cache_.match(request.options.space, request.tokens, {.max_tokens = most, .count = false});
  request.prefix.branch = match.known_tokens > match.num_tokens
                              ? match.known_tokens / setup_.granule * setup_.granule
                              : 0;
  request.prefix.inserted = request.prefix.checkpoint = request.computed = match.num_tokens;
  request.prefix.lock = std::move(match.lock);
  request.prefix.state = std::move(match.checkpoint);
  for (std::size_t g = 0; g < match.rows.size(); ++g) {
    if (match.num_tokens > 0)
      request.pages[g].adopt(match.rows[g].pages, match.rows[g].first_position);
  }
}

void PrefixSharing::insert(Request& request, std::int64_t computed) {
  const std::int64_t most = shareable(request, computed);
  InsertOptions options;
  if (most == computed) {
    options.checkpoint = std::exchange(request.prefix.state, nullptr);
    options.checkpoint_bytes = setup_.state_bytes;
  }
  if (most <= request.prefix.inserted && options.checkpoint == nullptr) return;
  std::vector<RowView> rows;
  for (const cache::RequestPages& pages : request.pages)
    rows.push_back({.pages = pages.pages(), .first_position = pages.first_position()});
  const auto tokens = std::span(request.tokens).first(static_cast<std::size_t>(most));
  Result<PrefixInsertion> done = cache_.insert(request.options.space, tokens, rows, options);
  require(done.ok(), done.status().text());
  for (const DuplicatePage& d : done->duplicates)
    request.pages[d.pool].exchange(pools_[d.pool], d.index, d.kept);
  request.prefix.inserted = done->num_tokens;
  if (options.checkpoint != nullptr) request.prefix.checkpoint = computed;
  if (done->lock.held()) request.prefix.lock = std::move(done->lock);
}

void PrefixSharing::forget(Request& request) {
  request.prefix.lock.release();
  request.prefix.state.reset();
  request.prefix.inserted = 0;
}

std::int64_t PrefixSharing::checkpoint_before(const Request& request, std::int64_t end) const {
  if (setup_.state_bytes == 0 || request.computed >= request.prompt_len) return 0;
  // Where others are known to go on differently, and the last place that the same prompt can use.
  const std::int64_t last = (request.prompt_len - 1) / setup_.granule * setup_.granule;
  for (const std::int64_t position : {std::min(request.prefix.branch, last), last})
    if (position > request.computed && position <= end) return position;
  const bool due = end - request.prefix.checkpoint >= interval_;
  return due && end % setup_.granule == 0 && end <= request.prompt_len ? end : 0;
}

}  // namespace attune::runtime
