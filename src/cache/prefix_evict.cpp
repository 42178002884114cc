#include "cache/prefix_tree.hpp"

namespace attune::cache {

bool PrefixTree::release_page(std::size_t p, PageId page) {
  const bool last = pool(p).holders(page) == 1;
  require(pool(p).release({&page, 1}).ok(), "the tree holds its pages");
  --held_[p];
  if (last) ++metrics_.evicted_pages;
  return last;
}

std::vector<std::int64_t> PrefixTree::shorten(Node& leaf, std::int64_t keep) {
  std::vector<std::int64_t> freed(num_pools(), 0);
  const auto kept = static_cast<std::size_t>(keep / page_size());
  for (std::size_t p = 0; p < num_pools(); ++p) {
    NodePages& own = leaf.pools[p];
    const bool listed = bounded(p) && own.present > 0;
    for (std::size_t i = kept; i < own.pages.size(); ++i) {
      if (own.pages[i] == kAbsent) continue;
      --own.present;
      if (release_page(p, own.pages[i])) ++freed[p];
    }
    own.pages.truncate(kept);
    if (listed && own.present == 0) window_order_[p].erase(own.place);
  }
  while (!leaf.checkpoints.empty() && leaf.checkpoints.back()->position > leaf.begin + keep)
    forget_checkpoint(leaf.checkpoints.back());
  metrics_.tokens -= leaf.num_tokens() - keep;
  if (keep > 0) leaf.tokens.truncate(static_cast<std::size_t>(keep));
  return freed;
}

std::int64_t PrefixTree::evict_tails(std::size_t p, std::int64_t pages) {
  std::int64_t freed = 0;
  while (freed < pages && !order_.empty()) {
    Node& leaf = order_.front();
    require(leaf.is_leaf(), "what goes first is a leaf");
    const std::int64_t count = std::ssize(leaf.pools[p].pages.view());
    const std::int64_t dropped = std::min(pages - freed, count);
    if (dropped < count) {
      freed += shorten(leaf, (count - dropped) * page_size())[p];
      continue;
    }
    Node* parent = leaf.parent;
    const std::int64_t before = pool(p).num_free();
    remove_leaf(leaf);
    freed += pool(p).num_free() - before;
    prune(parent);
  }
  return freed;
}

std::int64_t PrefixTree::evict_window(std::size_t p, std::int64_t pages) {
  std::list<Node*>& order = window_order_[p];
  std::int64_t freed = 0;
  // Nodes whose pages others hold go to the end: each is met once.
  for (std::size_t left = order.size(); left > 0 && freed < pages; --left) {
    Node& node = *order.front();
    NodePages& own = node.pools[p];
    for (std::size_t i = 0; i < own.pages.size() && freed < pages; ++i) {
      PageId& page = own.pages[i];
      if (page == kAbsent || pool(p).holders(page) > 1) continue;
      if (node.pins > 0) --pinned_[p];
      --own.present;
      freed += release_page(p, page) ? 1 : 0;
      page = kAbsent;
    }
    if (own.present > 0) {
      if (freed < pages) order.splice(order.end(), order, own.place);
      continue;
    }
    order.erase(own.place);
    prune(&node);
  }
  return freed;
}

std::int64_t PrefixTree::evict(std::size_t p, std::int64_t pages) {
  return bounded(p) ? evict_window(p, pages) : evict_tails(p, pages);
}

bool PrefixTree::make_room(std::size_t p, std::int64_t pages) {
  const std::int64_t missing = pages - pool(p).num_free();
  return missing <= 0 || evict(p, missing) >= missing;
}

void PrefixTree::evict_all() {
  while (!order_.empty()) {
    Node* parent = order_.front().parent;
    remove_leaf(order_.front());
    prune(parent);
  }
}

void PrefixTree::forget_checkpoint(CheckpointList::iterator checkpoint) {
  std::erase(checkpoint->node->checkpoints, checkpoint);
  metrics_.checkpoint_bytes -= checkpoint->bytes;
  --metrics_.checkpoints;
  ++metrics_.evicted_checkpoints;
  checkpoints_.erase(checkpoint);
}

void PrefixTree::drop_checkpoint(CheckpointList::iterator checkpoint) {
  Node* node = checkpoint->node;
  forget_checkpoint(checkpoint);
  prune(node);
}

}  // namespace attune::cache
