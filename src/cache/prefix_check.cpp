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

/// One walk over the tree, and what it finds.
class PrefixTree::Inspection {
 public:
  explicit Inspection(const PrefixTree& tree) : tree_(tree), windows_(tree.num_pools()) {
    census_.held.assign(tree.num_pools(), 0);
    census_.pinned.assign(tree.num_pools(), 0);
    census_.pages.resize(tree.num_pools());
  }
  Status run();

 private:
  Status read_orders();
  Status check_node(const Node& node);
  Status check_pages(const Node& node);
  Status check_children(const Node& node);
  [[nodiscard]] Status check_counters() const;

  const PrefixTree& tree_;
  Census census_;
  std::unordered_map<const Node*, std::int64_t> places_;  ///< in the eviction order
  std::vector<std::unordered_set<const Node*>> windows_;  ///< by pool: who is in its order
};

Status PrefixTree::check_invariants() const { return Inspection(*this).run(); }

Status PrefixTree::Inspection::run() {
  if (Status s = read_orders(); !s.ok()) return s;
  std::vector<const Node*> pending;
  for (const auto& [space, root] : tree_.roots_) {
    if (root->is_leaf() && root->pins == 0) return internal_error("an empty namespace is kept");
    pending.push_back(root.get());
  }
  while (!pending.empty()) {
    const Node& node = *pending.back();
    pending.pop_back();
    if (!node.is_root())
      if (Status s = check_node(node); !s.ok()) return s;
    if (Status s = check_children(node); !s.ok()) return s;
    for (const auto& child : node.children) pending.push_back(child.get());
  }
  return check_counters();
}

Status PrefixTree::Inspection::read_orders() {
  for (const auto& [rank, list] : tree_.order_.by_rank()) {
    if (list.empty()) return internal_error("the eviction order keeps an empty rank");
    for (const Node* node : list) {
      if (node->rank != rank) return broken(*node, "stands in another rank's list");
      places_.emplace(node, std::ssize(places_));
    }
  }
  for (std::size_t p = 0; p < tree_.num_pools(); ++p)
    for (const Node* node : tree_.window_order_[p])
      if (!windows_[p].insert(node).second) return broken(*node, "is twice in a window's order");
  return {};
}

Status PrefixTree::Inspection::check_pages(const Node& node) {
  const std::int64_t wanted = (node.num_tokens() + tree_.page_size() - 1) / tree_.page_size();
  for (std::size_t p = 0; p < tree_.num_pools(); ++p) {
    const NodePages& own = node.pools[p];
    if (std::ssize(own.pages.view()) != wanted) return broken(node, "has not a page per page");
    std::int64_t present = 0;
    for (const PageId page : own.pages.view()) {
      if (page == kAbsent) continue;
      ++present;
      if (tree_.pool(p).holders(page) == 0) return broken(node, "has a page that nobody holds");
      if (!census_.pages[p].insert(static_cast<std::int32_t>(page)).second)
        return broken(node, "has a page that is in the tree twice");
    }
    if (present != own.present) return broken(node, "miscounts its pages");
    if (!tree_.bounded(p) && present != wanted) return broken(node, "lacks pages without a window");
    if (windows_[p].contains(&node) != (tree_.bounded(p) && present > 0))
      return broken(node, "is missing in its window's order, or wrongly there");
    census_.held[p] += present;
    if (node.pins > 0) census_.pinned[p] += present;
  }
  return {};
}

Status PrefixTree::Inspection::check_node(const Node& node) {
  const bool partial = node.num_tokens() < tree_.page_size();
  if (node.num_tokens() == 0) return broken(node, "is empty");
  if (node.begin != node.parent->end()) return broken(node, "does not follow its parent");
  if (node.num_tokens() % tree_.page_size() != 0 && !partial) return broken(node, "cuts a page");
  if (partial && !(node.is_leaf() && node.pins == 0))
    return broken(node, "is a partial page with children or locks");
  std::int64_t before = node.begin;
  for (const auto& checkpoint : node.checkpoints) {
    if (checkpoint->node != &node || checkpoint->position <= before ||
        checkpoint->position > node.end() || checkpoint->position % tree_.granule_ != 0)
      return broken(node, "has a checkpoint out of place");
    before = checkpoint->position;
    ++census_.checkpoints;
    census_.checkpoint_bytes += checkpoint->bytes;
  }
  const auto place = places_.find(&node);
  if ((place != places_.end()) != (node.pins == 0))
    return broken(node, "stands in the eviction order while locked, or does not while unlocked");
  if (node.pins == 0 && !node.parent->is_root() && node.parent->pins == 0 &&
      places_.at(node.parent) < place->second)
    return broken(node, "would go after its parent");
  ++census_.nodes;
  census_.tokens += node.num_tokens();
  return check_pages(node);
}

Status PrefixTree::Inspection::check_children(const Node& node) {
  std::int64_t pins = node.locks;
  census_.locks += node.locks;
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
  }
  if (pins != node.pins) return broken(node, "miscounts its pins");
  return {};
}

Status PrefixTree::Inspection::check_counters() const {
  if (census_.nodes != tree_.metrics_.nodes || census_.tokens != tree_.metrics_.tokens)
    return internal_error(base::join("the tree has ", census_.nodes, " nodes and ", census_.tokens,
                                     " tokens, and counts ", tree_.metrics_.nodes, " and ",
                                     tree_.metrics_.tokens));
  if (census_.locks != tree_.locks_) return internal_error("locks are miscounted");
  if (census_.held != tree_.held_ || census_.pinned != tree_.pinned_)
    return internal_error("pages held or locked are miscounted");
  if (census_.checkpoints != std::ssize(tree_.checkpoints_) ||
      census_.checkpoints != tree_.metrics_.checkpoints ||
      census_.checkpoint_bytes != tree_.metrics_.checkpoint_bytes ||
      census_.checkpoint_bytes > tree_.options_.max_checkpoint_bytes)
    return internal_error("checkpoints are miscounted, or too many");
  std::size_t listed = 0;
  for (const auto& list : tree_.window_order_) listed += list.size();
  std::size_t found = 0;
  for (const auto& set : windows_) found += set.size();
  if (places_.size() > static_cast<std::size_t>(census_.nodes) || listed != found)
    return internal_error("an order names nodes that are not in the tree");
  return {};
}

}  // namespace attune::cache
