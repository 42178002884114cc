// The prefix cache: which pages hold the keys of which tokens, so that a prompt seen before is not
// computed again (layer cache). It works on page ids alone and needs no engine:
//
//   PagePool pool(/*num_pages=*/4096, /*page_size=*/16);
//   PrefixCache cache = *PrefixCache::make({.page_size = 16, .pools = {{.pool = &pool}}});
//
//   // A prompt arrives. At least one token must be left to compute.
//   PrefixMatch hit = cache.match({}, prompt, {.max_tokens = std::ssize(prompt) - 1});
//   std::vector<PageId> row = hit.rows[0].pages;       // held for you; hit.lock keeps them cached
//   if (cache.make_room(0, missing)) pool.allocate(missing, row);   // evicts what nobody uses
//
//   // Its keys are computed (the prompt's, or the answer's too): offer them, go on using them.
//   const RowView rows[] = {{.pages = row}};
//   PrefixInsertion in = *cache.insert({}, tokens, rows);
//   hit.lock = std::move(in.lock);
//
//   // It ends. Pages that the tree took live on; the others are free.
//   hit.lock.release();
//   pool.release(row);
//
// A radix tree over tokens; every node is a whole number of pages. docs/prefix-cache.md tells the
// rest, docs/decisions/0003-prefix-cache.md why it is so. One thread at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/cache.hpp>
#include <attune/status.hpp>

namespace attune {

namespace cache {
struct Node;
class PrefixTree;
}  // namespace cache

/// Requests see each other's pages within one namespace only. Two are the same where both parts are.
struct CacheNamespace {
  std::int64_t adapter = 0;  ///< the id, not the label, of what changes the weights; 0 = none
  std::string salt{};        ///< whatever else changes keys, or must not be shared: tenant, images

  auto operator<=>(const CacheNamespace&) const = default;
};

/// Which unused pages go first. Ties, and all of `lru`, go by the last use.
enum class EvictionPolicy : std::uint8_t {
  lru,
  lfu,       ///< least often matched or inserted
  priority,  ///< smallest InsertOptions::priority
};

[[nodiscard]] constexpr std::string_view name(EvictionPolicy policy) {
  switch (policy) {
    case EvictionPolicy::lru: return "lru";
    case EvictionPolicy::lfu: return "lfu";
    case EvictionPolicy::priority: return "priority";
  }
  return "?";
}

/// Layers whose keys live equally long, and the pool of their pages. With a window or a chunk
/// (tokens, as in AttentionSpec) a hit needs only the pages that its next token sees.
struct CachedPool {
  PagePool* pool = nullptr;  ///< outlives the cache
  std::int64_t window_left = -1;
  std::int64_t attention_chunk = 0;

  [[nodiscard]] bool bounded() const { return window_left >= 0 || attention_chunk > 0; }
};

/// What PrefixCache::make is told, once.
struct PrefixCacheOptions {
  std::int32_t page_size = 16;  ///< of every pool
  std::vector<CachedPool> pools{};
  EvictionPolicy policy = EvictionPolicy::lru;
  /// Tokens. Hits end at multiples of this, and windows begin there: a multiple of the page size, or
  /// 1 for no such rule. kPromptGranule where a prompt's bits must not depend on the hit.
  std::int64_t granule = 1;
  /// Models with recurrent states: a hit ends only where a checkpoint of them is kept.
  bool needs_checkpoints = false;
  std::int64_t max_checkpoint_bytes = INT64_MAX;  ///< beyond it the least recently used ones go
};

/// Keeps what was matched or inserted from being evicted, until it is released or destroyed. The
/// cache outlives its locks.
class PrefixLock {
 public:
  PrefixLock() = default;
  PrefixLock(PrefixLock&& other) noexcept;
  PrefixLock& operator=(PrefixLock&& other) noexcept;
  PrefixLock(const PrefixLock&) = delete;
  PrefixLock& operator=(const PrefixLock&) = delete;
  ~PrefixLock() { release(); }

  void release();
  [[nodiscard]] bool held() const { return node_ != nullptr; }

 private:
  friend class cache::PrefixTree;
  PrefixLock(cache::PrefixTree& tree, cache::Node& node) : tree_(&tree), node_(&node) {}

  cache::PrefixTree* tree_ = nullptr;
  cache::Node* node_ = nullptr;
};

/// Pages of one pool in order of position; the first holds the token at `first_position`.
struct PrefixRow {
  std::vector<PageId> pages{};
  std::int64_t first_position = 0;
};

/// How match() looks.
struct MatchOptions {
  std::int64_t max_tokens = INT64_MAX;  ///< the longest useful hit
  bool partial_page = false;            ///< also find tokens at the beginning of a page
  /// Counts in the metrics. A scheduler that asks again and again for a waiting request sets false,
  /// and calls count_lookup() when the hit is used.
  bool count = true;
};

/// What match() found: a hit of num_tokens tokens, 0 for none.
struct PrefixMatch {
  std::int64_t num_tokens = 0;    ///< of the hit: whole pages
  std::int64_t known_tokens = 0;  ///< that the tree knows; more than num_tokens where a window's
                                  ///< pages or a checkpoint are missing
  /// By pool. The caller is one more holder of each page, and releases them to the pool.
  std::vector<PrefixRow> rows{};
  PrefixLock lock{};
  std::shared_ptr<const void> checkpoint{};  ///< as inserted, after exactly num_tokens tokens
  /// If asked for: that many tokens more lie at the beginning of these pages, one a pool, held too.
  /// They belong to others: make_writable() before a token is added.
  std::int64_t partial_tokens = 0;
  std::vector<PageId> partial_pages{};
};

/// What else insert() is told.
struct InsertOptions {
  std::int64_t priority = 0;       ///< EvictionPolicy::priority: the smallest go first
  bool keep_partial_page = false;  ///< also the tokens behind the last whole page
  /// The recurrent states after exactly the inserted tokens, whose number must be a multiple of the
  /// page size.
  std::shared_ptr<const void> checkpoint{};
  std::int64_t checkpoint_bytes = 0;
};

/// A page of the caller's row that the tree did not take, because it has another for the same
/// tokens.
struct DuplicatePage {
  std::size_t pool = 0;
  std::size_t index = 0;  ///< in the caller's row
  PageId kept{};          ///< the tree's; not held for the caller
};

/// What insert() did.
struct PrefixInsertion {
  std::int64_t known_tokens = 0;  ///< that were there before
  std::int64_t num_tokens = 0;    ///< now there: the whole pages of the key
  /// To be freed by releasing the row, now (after retaining `kept` in its place) or when it ends.
  std::vector<DuplicatePage> duplicates{};
  PrefixLock lock{};  ///< on all of num_tokens
};

/// A row as insert() reads it. Pools with a window may begin late.
struct RowView {
  std::span<const PageId> pages{};
  std::int64_t first_position = 0;
};

/// Counters since the cache was made, and what it holds now.
struct PrefixMetrics {
  std::int64_t lookups = 0;
  std::int64_t hits = 0;  ///< lookups that gave a page at least
  std::int64_t lookup_tokens = 0;
  std::int64_t hit_tokens = 0;
  std::int64_t inserted_tokens = 0;
  std::int64_t duplicate_pages = 0;
  std::int64_t evicted_pages = 0;  ///< of every pool
  std::int64_t evicted_checkpoints = 0;
  std::int64_t tokens = 0;  ///< in the tree now
  std::int64_t nodes = 0;
  std::int64_t checkpoints = 0;
  std::int64_t checkpoint_bytes = 0;
};

/// The cache. The pools outlive it, and it outlives its locks.
class PrefixCache {
 public:
  /// Refuses (invalid_argument) null pools, pools of different page sizes, granules that cut pages.
  static Result<PrefixCache> make(PrefixCacheOptions options);

  PrefixCache(PrefixCache&&) noexcept;
  PrefixCache& operator=(PrefixCache&&) noexcept;
  /// Returns the tree's pages. No lock may be held.
  ~PrefixCache();

  /// The longest usable prefix of `tokens`, held and locked. Time is linear in the hit.
  [[nodiscard]] PrefixMatch match(const CacheNamespace& space, std::span<const std::int32_t> tokens,
                                  const MatchOptions& options = {});

  /// In the metrics: a lookup that was not counted as it was made has been used.
  void count_lookup(std::int64_t tokens, std::int64_t hit_tokens);

  /// Offers computed keys. The tree becomes one more holder of each page that it takes: those of
  /// `rows` (one a pool) that hold the whole pages of `tokens`. The rows stay the caller's. Rows that
  /// do not hold the tokens, or pages that nobody holds, are an invalid_argument. Time is linear in
  /// the row.
  Result<PrefixInsertion> insert(const CacheNamespace& space, std::span<const std::int32_t> tokens,
                                 std::span<const RowView> rows, const InsertOptions& options = {});

  /// Frees up to `pages` pages of pool number `pool`, and what else hangs on them, without touching
  /// what is locked or held by others. Returns the number freed. Time is linear in the pages evicted.
  std::int64_t evict(std::size_t pool, std::int64_t pages);

  /// Evicts until `pool` has `pages` free pages; false where it could not.
  bool make_room(std::size_t pool, std::int64_t pages);

  /// Evicts everything that is not locked.
  void clear();

  /// Pages that evict() could free now: of a pool without window, those that no lock protects.
  [[nodiscard]] std::int64_t evictable_pages(std::size_t pool) const;
  /// Pages of a pool that the tree holds.
  [[nodiscard]] std::int64_t held_pages(std::size_t pool) const;
  [[nodiscard]] PrefixMetrics metrics() const;

  /// For tests: walks everything; the text names the first rule that is broken.
  [[nodiscard]] Status check_invariants() const;

 private:
  explicit PrefixCache(std::unique_ptr<cache::PrefixTree> tree);
  std::unique_ptr<cache::PrefixTree> tree_;
};

}  // namespace attune
