// A node of the prefix tree: an edge of tokens, their pages in every pool, and its links (layer
// cache).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include <attune/cache.hpp>
#include <attune/prefix_cache.hpp>
#include <attune/status.hpp>

namespace attune::cache {

struct Node;

/// What a node holds for a page that it does not have in some pool.
inline constexpr PageId kAbsent{-1};

/// A sequence that loses elements at both ends, each in time linear in what it loses: a node that
/// is split keeps its end, one that is evicted keeps its beginning.
template <class T>
class Run {
 public:
  Run() = default;
  explicit Run(std::span<const T> values) : values_(values.begin(), values.end()) {}

  [[nodiscard]] std::span<const T> view() const { return std::span(values_).subspan(first_); }
  [[nodiscard]] std::size_t size() const { return values_.size() - first_; }
  [[nodiscard]] T& operator[](std::size_t i) { return values_[first_ + i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return values_[first_ + i]; }

  void drop_front(std::size_t count) {
    first_ += count;
    if (first_ * 2 <= values_.size()) return;
    values_.erase(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  void truncate(std::size_t size) {
    values_.resize(first_ + size);
    if (values_.capacity() > 2 * values_.size()) values_.shrink_to_fit();
  }

 private:
  std::vector<T> values_;
  std::size_t first_ = 0;
};

/// A model's recurrent states after `position` tokens.
struct Checkpoint {
  Node* node = nullptr;
  std::int64_t position = 0;
  std::int64_t bytes = 0;
  std::shared_ptr<const void> state;
};
using CheckpointList = std::list<Checkpoint>;  ///< least recently used first

/// Any total order does that keeps sequences with the longest common beginning side by side.
[[nodiscard]] inline bool tokens_less(std::span<const std::int32_t> a,
                                      std::span<const std::int32_t> b) {
  const std::size_t both = std::min(a.size(), b.size());
  const int order = both == 0 ? 0 : std::memcmp(a.data(), b.data(), both * sizeof(std::int32_t));
  return order != 0 ? order < 0 : a.size() < b.size();
}

/// Children are told apart by their first page: no two share one.
struct ByFirstPage {
  using is_transparent = void;
  std::size_t page_size;

  [[nodiscard]] std::span<const std::int32_t> key(std::span<const std::int32_t> tokens) const {
    return tokens.first(std::min(tokens.size(), page_size));
  }
  [[nodiscard]] std::span<const std::int32_t> key(const std::unique_ptr<Node>& node) const;

  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return tokens_less(key(a), key(b));
  }
};

/// A node's pages in one pool. Where the pool has a window, pages may be absent.
struct NodePages {
  Run<PageId> pages;
  std::int64_t present = 0;
  std::list<Node*>::iterator place{};  ///< in the pool's list of window pages, where present > 0
};

/// Whole pages of tokens, or, as a leaf, one page that is not full.
struct Node {
  explicit Node(std::size_t page_size) : children(ByFirstPage{page_size}) {}

  Node* parent = nullptr;                 ///< none: the root of a namespace, which has no tokens
  const CacheNamespace* space = nullptr;  ///< of a root
  std::int64_t begin = 0;                 ///< tokens before this node
  Run<std::int32_t> tokens;
  std::vector<NodePages> pools;
  std::set<std::unique_ptr<Node>, ByFirstPage> children;
  std::vector<CheckpointList::iterator> checkpoints;  ///< by position, in (begin, end()]

  std::int64_t locks = 0;              ///< handles on this very node
  std::int64_t pins = 0;               ///< locks, and children with pins: none = may be evicted
  std::int64_t rank = 0;               ///< what the policy goes by: hits, or priority
  std::list<Node*>::iterator place{};  ///< in the eviction order, while not pinned

  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  [[nodiscard]] std::int64_t end() const { return begin + num_tokens(); }
  [[nodiscard]] bool is_root() const { return parent == nullptr; }
  [[nodiscard]] bool is_leaf() const { return children.empty(); }
};

inline std::span<const std::int32_t> ByFirstPage::key(const std::unique_ptr<Node>& node) const {
  return key(node->tokens.view());
}

}  // namespace attune::cache
