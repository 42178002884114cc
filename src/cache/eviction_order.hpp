// Nodes that may be evicted, in the order in which they go (layer cache).
//
// Every use of a node is a use of its ancestors, and is told child first; so an ancestor never
// stands before a descendant, and the front is always a leaf: eviction searches nothing.
#pragma once

#include <cstdint>
#include <list>
#include <map>

#include "cache/radix_node.hpp"

namespace attune::cache {

class EvictionOrder {
 public:
  /// As the most recently used one of its rank.
  void add(Node& node);
  void remove(Node& node);
  /// A node made of another's first pages, right behind it.
  void add_after(Node& node, const Node& before);
  /// Used again, now with `rank`.
  void touch(Node& node, std::int64_t rank);

  [[nodiscard]] bool empty() const { return by_rank_.empty(); }
  [[nodiscard]] Node& front() const { return *by_rank_.begin()->second.front(); }
  [[nodiscard]] const std::map<std::int64_t, std::list<Node*>>& by_rank() const { return by_rank_; }

 private:
  std::map<std::int64_t, std::list<Node*>> by_rank_;  ///< no empty lists
};

}  // namespace attune::cache
