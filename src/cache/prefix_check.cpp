// Every rule that the tree keeps between two calls, told from the tree itself and not from its own
// counters.
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/join.hpp"
#include "cache/prefix_tree.hpp"

namespace attune::cache {
namespace {

/// What a walk over all nodes finds.
struct Census {
  std::int64_t nodes = 0;
  std::int64_t tokens = 0;
  std::int64_t locks = 0;
  std::int64_t checkpoints = 0;
  std::int64_t checkpoint_bytes = 0;
  std::vector<std::int64_t> held;
  std::vector<std::int64_t> pinned;
  std::vector<std::unordered_set<std::int32_t>> pages;  ///< by pool
};

Status broken(const Node& node, const std::string& what) {
  return internal_error(
      base::join("prefix cache, node of tokens [", node.begin, ", ", node.end(), "): ", what));
}

}  // namespace

Status PrefixTree::check_invariants() const {
  Census census;
  census.held.assign(num_pools(), 0);
  census.pinned.assign(num_pools(), 0);
  census.pages.resize(num_pools());

  // The eviction order: who stands where.
  std::unordered_map<const Node*, std::int64_t> order;
  for (const auto& [rank, list] : order_.by_rank()) {
    if (list.empty()) return internal_error("the eviction order keeps an empty rank");
    for (const Node* node : list) {
      if (node->rank != rank) return broken(*node, "stands in another rank's list");
      order.emplace(node, std::ssize(order));
    }
  }
  std::vector<std::unordered_set<const Node*>> windows(num_pools());
  for (std::size_t p = 0; p < num_pools(); ++p)
    for (const Node* node : window_order_[p])
      if (!windows[p].insert(node).second) return broken(*node, "is twice in a window's order");

  const auto check_pages = [&](const Node& node) -> Status {
    const std::int64_t wanted = (node.num_tokens() + page_size() - 1) / page_size();
    for (std::size_t p = 0; p < num_pools(); ++p) {
      const NodePages& own = node.pools[p];
      if (std::ssize(own.pages.view()) != wanted) return broken(node, "has not a page per page");
      std::int64_t present = 0;
      for (const PageId page : own.pages.view()) {
        if (page == kAbsent) continue;
        ++present;
        if (pool(p).holders(page) == 0) return broken(node, "has a page that nobody holds");
        if (!census.pages[p].insert(static_cast<std::int32_t>(page)).second)
          return broken(node, "has a page that is in the tree twice");
      }
      if (present != own.present) return broken(node, "miscounts its pages");
      if (!bounded(p) && present != wanted) return broken(node, "lacks pages without a window");
      if (windows[p].contains(&node) != (bounded(p) && present > 0))
        return broken(node, "is missing in its window's order, or wrongly there");
      census.held[p] += present;
      if (node.pins > 0) census.pinned[p] += present;
    }
    return {};
  };

  const auto check_node = [&](const Node& node) -> Status {
    const bool partial = node.num_tokens() < page_size();
    if (node.num_tokens() == 0) return broken(node, "is empty");
    if (node.begin != node.parent->end()) return broken(node, "does not follow its parent");
    if (node.num_tokens() % page_size() != 0 && !partial) return broken(node, "cuts a page");
    if (partial && !(node.is_leaf() && node.pins == 0))
      return broken(node, "is a partial page with children or locks");
    std::int64_t before = node.begin;
    for (const auto& checkpoint : node.checkpoints) {
      if (checkpoint->node != &node || checkpoint->position <= before ||
          checkpoint->position > node.end() || checkpoint->position % granule_ != 0)
        return broken(node, "has a checkpoint out of place");
      before = checkpoint->position;
      ++census.checkpoints;
      census.checkpoint_bytes += checkpoint->bytes;
    }
    const auto place = order.find(&node);
    if ((place != order.end()) != (node.pins == 0))
      return broken(node, "stands in the eviction order while locked, or does not while unlocked");
    if (node.pins == 0 && !node.parent->is_root() && node.parent->pins == 0 &&
        order.at(node.parent) < place->second)
      return broken(node, "would go after its parent");
    ++census.nodes;
    census.tokens += node.num_tokens();
    return check_pages(node);
  };

  std::vector<const Node*> pending;
  for (const auto& [space, root] : roots_) {
    if (root->is_leaf() && root->pins == 0) return internal_error("an empty namespace is kept");
    pending.push_back(root.get());
  }
  while (!pending.empty()) {
    const Node& node = *pending.back();
    pending.pop_back();
    if (!node.is_root())
      if (Status s = check_node(node); !s.ok()) return s;
    std::int64_t pins = node.locks;
    census.locks += node.locks;
    const Node* previous = nullptr;
    for (const auto& child : node.children) {
      if (child->parent != &node) return broken(*child, "has another parent");
      if (previous != nullptr) {
        const ByFirstPage order_of = node.children.key_comp();
        const Tokens a = order_of.key(previous->tokens.view());
        const Tokens b = order_of.key(child->tokens.view());
        if (!tokens_less(a, b)) return broken(*child, "stands out of order");
        if (std::ranges::mismatch(a, b).in1 == a.end())
          return broken(*previous, "is the beginning of its sibling");
      }
      previous = child.get();
      pins += child->pins > 0 ? 1 : 0;
      pending.push_back(child.get());
    }
    if (pins != node.pins) return broken(node, "miscounts its pins");
  }

  if (census.nodes != metrics_.nodes || census.tokens != metrics_.tokens)
    return internal_error(base::join("the tree has ", census.nodes, " nodes and ", census.tokens,
                                     " tokens, and counts ", metrics_.nodes, " and ",
                                     metrics_.tokens));
  if (census.locks != locks_) return internal_error("locks are miscounted");
  if (census.held != held_ || census.pinned != pinned_)
    return internal_error("pages held or locked are miscounted");
  if (census.checkpoints != std::ssize(checkpoints_) ||
      census.checkpoints != metrics_.checkpoints ||
      census.checkpoint_bytes != metrics_.checkpoint_bytes ||
      census.checkpoint_bytes > options_.max_checkpoint_bytes)
    return internal_error("checkpoints are miscounted, or too many");
  std::size_t listed = 0;
  for (const auto& list : window_order_) listed += list.size();
  std::size_t found = 0;
  for (const auto& set : windows) found += set.size();
  if (order.size() > static_cast<std::size_t>(census.nodes) || listed != found)
    return internal_error("an order names nodes that are not in the tree");
  return {};
}

}  // namespace attune::cache
