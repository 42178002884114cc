// The tree behind PrefixCache: nodes, what protects them, what goes first (layer cache). Its
// methods are spread over three files by what they are for:
//   prefix_tree.cpp   the shape: walk, split, grow, remove, pin
//   prefix_match.cpp  match and insert
//   prefix_evict.cpp  eviction and the windows' pages
//   prefix_check.cpp  the invariants
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <attune/prefix_cache.hpp>

#include "attention/mask.hpp"
#include "cache/eviction_order.hpp"
#include "cache/radix_node.hpp"

namespace attune::cache {

class PrefixTree {
 public:
  explicit PrefixTree(PrefixCacheOptions options);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  using Tokens = std::span<const std::int32_t>;

  PrefixMatch match(const CacheNamespace& space, Tokens tokens, const MatchOptions& options);
  void count_lookup(std::int64_t tokens, std::int64_t hit_tokens);
  Result<PrefixInsertion> insert(const CacheNamespace& space, Tokens tokens,
                                 std::span<const RowView> rows, const InsertOptions& options);
  std::int64_t evict(std::size_t pool, std::int64_t pages);
  bool make_room(std::size_t pool, std::int64_t pages);
  void unlock(Node& node);

  [[nodiscard]] std::int64_t evictable_pages(std::size_t pool) const {
    return held_[pool] - pinned_[pool];
  }
  [[nodiscard]] std::int64_t held_pages(std::size_t pool) const { return held_[pool]; }
  [[nodiscard]] std::size_t num_pools() const { return options_.pools.size(); }
  [[nodiscard]] const PrefixMetrics& metrics() const { return metrics_; }
  void evict_all();

  [[nodiscard]] Status check_invariants() const;

 private:
  class Inspection;

  PrefixMatch find(const CacheNamespace& space, Tokens tokens, const MatchOptions& options);
  /// Where a key's walk ends: `matched` tokens, inside or at the end of `node`.
  struct Walk {
    Node* node;
    std::int64_t matched;
  };

  // The shape.
  [[nodiscard]] Walk walk(Node& root, Tokens tokens) const;
  /// The node of the path to `node` that holds the token before `position`.
  [[nodiscard]] static Node& node_at(Node& node, std::int64_t position);
  /// Cuts `node` at `position`; the new node of its first pages, which ends there.
  Node& split(Node& node, std::int64_t position);
  /// The same where `position` lies inside; else the node itself.
  Node& ending_at(Node& node, std::int64_t position);
  Node& add_leaf(Node& parent, Tokens tokens, std::span<const RowView> rows, std::int64_t priority);
  void remove_leaf(Node& node);
  /// Removes what no hit can use: leaves without pages and checkpoints, and what they leave.
  void prune(Node* node);
  [[nodiscard]] PrefixLock lock(Node& node);
  void pin(Node& node);
  void unpin(Node& node);
  void count_pinned(const Node& node, std::int64_t sign);

  // Matching and inserting.
  [[nodiscard]] std::int64_t usable(Node& node, std::int64_t matched) const;
  [[nodiscard]] std::int64_t round_hit(std::int64_t position) const;
  /// The last page begin in [from, to) that `pool` lacks on the path to `node`, or -1.
  [[nodiscard]] std::int64_t last_absent(const Node& node, std::size_t pool, std::int64_t from,
                                         std::int64_t to) const;
  /// The first position that a query at `next` needs from `pool`.
  [[nodiscard]] std::int64_t first_needed(std::size_t pool, std::int64_t next) const;
  [[nodiscard]] PrefixRow collect(const Node& node, std::size_t pool, std::int64_t end);
  void use(Node& node, std::int64_t priority);
  void match_partial(const Walk& walk, Tokens rest, PrefixMatch& match);
  [[nodiscard]] Status check_rows(Tokens tokens, std::span<const RowView> rows,
                                  const InsertOptions& options) const;
  /// Pages that the tree lacks are taken, others that it has twice are reported.
  void reconcile(Node& node, std::int64_t end, std::span<const RowView> rows,
                 PrefixInsertion& result);
  void add_partial(Node& parent, Tokens rest, std::span<const RowView> rows, std::int64_t priority);
  /// Removes a child whose tokens, less than a page, are the beginning of `longer`.
  void drop_partial(Node& parent, Tokens longer);
  void add_checkpoint(Node& node, std::int64_t position, const InsertOptions& options);

  // Evicting.
  std::int64_t evict_tails(std::size_t pool, std::int64_t pages);
  std::int64_t evict_window(std::size_t pool, std::int64_t pages);
  /// Drops the pages of a leaf behind its first `keep` tokens.
  /// The pages that became free, by pool.
  std::vector<std::int64_t> shorten(Node& leaf, std::int64_t keep);
  /// The tree's hold on one page; whether the page became free.
  bool release_page(std::size_t pool, PageId page);
  void forget_checkpoint(CheckpointList::iterator checkpoint);
  /// The same, and the node where it was its only use.
  void drop_checkpoint(CheckpointList::iterator checkpoint);

  [[nodiscard]] PagePool& pool(std::size_t i) const { return *options_.pools[i].pool; }
  [[nodiscard]] bool bounded(std::size_t i) const { return options_.pools[i].bounded(); }
  [[nodiscard]] std::int64_t page_size() const { return options_.page_size; }

  PrefixCacheOptions options_;
  std::int64_t granule_ = 1;  ///< of hits: a multiple of the page size
  std::vector<attention::MaskRule> rules_;
  std::map<CacheNamespace, std::unique_ptr<Node>> roots_;
  EvictionOrder order_;
  std::vector<std::list<Node*>>
      window_order_;  ///< by pool with a window: least recently used first
  CheckpointList checkpoints_;
  std::vector<std::int64_t> held_;    ///< pages, by pool
  std::vector<std::int64_t> pinned_;  ///< of those, in pinned nodes
  std::int64_t locks_ = 0;
  PrefixMetrics metrics_;
};

}  // namespace attune::cache
