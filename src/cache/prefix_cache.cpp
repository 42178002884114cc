#include <attune/prefix_cache.hpp>

#include <utility>

#include "base/join.hpp"
#include "cache/prefix_tree.hpp"

namespace attune {

PrefixLock::PrefixLock(PrefixLock&& other) noexcept
    : tree_(std::exchange(other.tree_, nullptr)), node_(std::exchange(other.node_, nullptr)) {}

PrefixLock& PrefixLock::operator=(PrefixLock&& other) noexcept {
  if (this == &other) return *this;
  release();
  tree_ = std::exchange(other.tree_, nullptr);
  node_ = std::exchange(other.node_, nullptr);
  return *this;
}

void PrefixLock::release() {
  if (node_ != nullptr) tree_->unlock(*std::exchange(node_, nullptr));
}

Result<PrefixCache> PrefixCache::make(PrefixCacheOptions options) {
  if (options.page_size < 1)
    return invalid_argument(base::join("page_size is ", options.page_size, "; wanted 1 at least"));
  if (options.granule < 1 || (options.granule > 1 && options.granule % options.page_size != 0))
    return invalid_argument(base::join("granule is ", options.granule,
                                       "; wanted 1 or a multiple of the page size, ",
                                       options.page_size));
  for (const CachedPool& p : options.pools) {
    if (p.pool == nullptr) return invalid_argument("a pool of the prefix cache is missing");
    if (p.pool->page_size() != options.page_size)
      return invalid_argument(base::join("a pool has pages of ", p.pool->page_size(),
                                         " tokens; wanted ", options.page_size, " in every pool"));
  }
  return PrefixCache(std::make_unique<cache::PrefixTree>(std::move(options)));
}

PrefixCache::PrefixCache(std::unique_ptr<cache::PrefixTree> tree) : tree_(std::move(tree)) {}
PrefixCache::PrefixCache(PrefixCache&&) noexcept = default;
PrefixCache& PrefixCache::operator=(PrefixCache&&) noexcept = default;
PrefixCache::~PrefixCache() = default;

PrefixMatch PrefixCache::match(const CacheNamespace& space, std::span<const std::int32_t> tokens,
                               const MatchOptions& options) {
  return tree_->match(space, tokens, options);
}

Result<PrefixInsertion> PrefixCache::insert(const CacheNamespace& space,
                                            std::span<const std::int32_t> tokens,
                                            std::span<const RowView> rows,
                                            const InsertOptions& options) {
  return tree_->insert(space, tokens, rows, options);
}

std::int64_t PrefixCache::evict(std::size_t pool, std::int64_t pages) {
  return pool < tree_->num_pools() ? tree_->evict(pool, pages) : 0;
}

bool PrefixCache::make_room(std::size_t pool, std::int64_t pages) {
  return pool < tree_->num_pools() && tree_->make_room(pool, pages);
}

void PrefixCache::clear() { tree_->evict_all(); }

std::int64_t PrefixCache::evictable_pages(std::size_t pool) const {
  return tree_->evictable_pages(pool);
}

std::int64_t PrefixCache::held_pages(std::size_t pool) const { return tree_->held_pages(pool); }

void PrefixCache::count_lookup(std::int64_t tokens, std::int64_t hit_tokens) {
  tree_->count_lookup(tokens, hit_tokens);
}

PrefixMetrics PrefixCache::metrics() const { return tree_->metrics(); }

Status PrefixCache::check_invariants() const { return tree_->check_invariants(); }

}  // namespace attune
