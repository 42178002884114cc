#include "cache/prefix_tree.hpp"

#include <numeric>

namespace attune::cache {
namespace {

/// Equal tokens at the beginning of both.
std::int64_t common_tokens(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  constexpr std::size_t kBlock = 64;  // memcmp finds that blocks differ, not where
  const std::size_t both = std::min(a.size(), b.size());
  std::size_t n = 0;
  while (n + kBlock <= both &&
         std::memcmp(a.data() + n, b.data() + n, kBlock * sizeof(std::int32_t)) == 0)
    n += kBlock;
  while (n < both && a[n] == b[n]) ++n;
  return static_cast<std::int64_t>(n);
}

/// Nothing in it that a hit could use.
bool useless(const Node& node) {
  return node.checkpoints.empty() &&
         std::ranges::all_of(node.pools, [](const NodePages& p) { return p.present == 0; });
}

std::int64_t count_present(const Run<PageId>& pages) {
  return std::ranges::count_if(pages.view(), [](PageId page) { return page != kAbsent; });
}

}  // namespace

PrefixTree::PrefixTree(PrefixCacheOptions options)
    : options_(std::move(options)),
      granule_(std::lcm<std::int64_t>(options_.granule, options_.page_size)),
      window_order_(options_.pools.size()),
      held_(options_.pools.size(), 0),
      pinned_(options_.pools.size(), 0) {
  for (const CachedPool& p : options_.pools)
    rules_.push_back(
        {.causal = true, .window_left = p.window_left, .attention_chunk = p.attention_chunk});
}

PrefixTree::~PrefixTree() {
  require(locks_ == 0, "every PrefixLock is released before its cache is destroyed");
  evict_all();
}

PrefixTree::Walk PrefixTree::walk(Node& root, Tokens tokens) const {
  Walk at{.node = &root, .matched = 0};
  while (true) {
    const Tokens rest = tokens.subspan(static_cast<std::size_t>(at.matched));
    if (static_cast<std::int64_t>(rest.size()) < page_size()) return at;
    const auto child = at.node->children.find(rest);
    if (child == at.node->children.end()) return at;
    const std::int64_t common = common_tokens((*child)->tokens.view(), rest);
    at.node = child->get();
    at.matched += common / page_size() * page_size();
    if (at.matched < at.node->end()) return at;
  }
}

Node& PrefixTree::node_at(Node& node, std::int64_t position) {
  Node* n = &node;
  while (n->begin >= position && !n->is_root()) n = n->parent;
  return *n;
}

Node& PrefixTree::split(Node& node, std::int64_t position) {
  const auto num_tokens = static_cast<std::size_t>(position - node.begin);
  const auto num_pages = num_tokens / static_cast<std::size_t>(page_size());
  auto owner = node.parent->children.extract(node.parent->children.find(node.tokens.view()));
  std::unique_ptr<Node> tail = std::move(owner.value());

  auto head = std::make_unique<Node>(static_cast<std::size_t>(page_size()));
  head->parent = node.parent;
  head->begin = node.begin;
  head->tokens = Run<std::int32_t>(node.tokens.view().first(num_tokens));
  head->pins = node.pins > 0 ? 1 : 0;
  head->rank = node.rank;
  if (node.pins == 0) order_.add_after(*head, node);
  head->pools.resize(num_pools());
  for (std::size_t p = 0; p < num_pools(); ++p) {
    NodePages& first = head->pools[p];
    NodePages& rest = node.pools[p];
    const bool listed = bounded(p) && rest.present > 0;
    first.pages = Run<PageId>(rest.pages.view().first(num_pages));
    first.present = bounded(p) ? count_present(first.pages) : static_cast<std::int64_t>(num_pages);
    rest.pages.drop_front(num_pages);
    rest.present -= first.present;
    if (!listed) continue;
    if (first.present > 0) first.place = window_order_[p].insert(rest.place, head.get());
    if (rest.present == 0) window_order_[p].erase(rest.place);
  }
  const auto later = std::ranges::find_if(
      node.checkpoints, [&](const auto& checkpoint) { return checkpoint->position > position; });
  head->checkpoints.assign(node.checkpoints.begin(), later);
  node.checkpoints.erase(node.checkpoints.begin(), later);
  for (const auto& checkpoint : head->checkpoints) checkpoint->node = head.get();

  node.tokens.drop_front(num_tokens);
  node.begin = position;
  node.parent = head.get();
  Node& made = *head;
  head->children.insert(std::move(tail));
  owner.value() = std::move(head);
  made.parent->children.insert(std::move(owner));
  ++metrics_.nodes;
  return made;
}

Node& PrefixTree::ending_at(Node& node, std::int64_t position) {
  Node& holder = node_at(node, position);
  return position < holder.end() ? split(holder, position) : holder;
}

Node& PrefixTree::add_leaf(Node& parent, Tokens tokens, std::span<const RowView> rows,
                           std::int64_t priority) {
  auto leaf = std::make_unique<Node>(static_cast<std::size_t>(page_size()));
  leaf->parent = &parent;
  leaf->begin = parent.end();
  leaf->tokens = Run<std::int32_t>(tokens);
  leaf->rank = options_.policy == EvictionPolicy::lfu        ? 1
               : options_.policy == EvictionPolicy::priority ? priority
                                                             : 0;
  leaf->pools.resize(num_pools());
  const std::int64_t num_pages = (leaf->num_tokens() + page_size() - 1) / page_size();
  std::vector<PageId> pages;
  for (std::size_t p = 0; p < num_pools(); ++p) {
    const RowView& row = rows[p];
    // A row with a window may begin behind the leaf's first pages.
    const std::int64_t skipped = (leaf->begin - row.first_position) / page_size();
    const std::int64_t absent = std::clamp<std::int64_t>(-skipped, 0, num_pages);
    pages.assign(static_cast<std::size_t>(absent), kAbsent);
    const auto held =
        row.pages.subspan(static_cast<std::size_t>(std::max<std::int64_t>(skipped, 0)),
                          static_cast<std::size_t>(num_pages - absent));
    pages.insert(pages.end(), held.begin(), held.end());
    require(pool(p).retain(held).ok(), "rows that were checked hold their pages");
    NodePages& own = leaf->pools[p];
    own.pages = Run<PageId>(std::span<const PageId>(pages));
    own.present = static_cast<std::int64_t>(held.size());
    held_[p] += own.present;
    if (bounded(p) && own.present > 0)
      own.place = window_order_[p].insert(window_order_[p].end(), leaf.get());
  }
  order_.add(*leaf);
  ++metrics_.nodes;
  metrics_.tokens += leaf->num_tokens();
  metrics_.inserted_tokens += leaf->num_tokens();
  return **parent.children.insert(std::move(leaf)).first;
}

void PrefixTree::remove_leaf(Node& node) {
  require(node.is_leaf() && node.pins == 0, "only unlocked leaves leave the tree");
  const auto owner = node.parent->children.find(node.tokens.view());
  shorten(node, 0);
  order_.remove(node);
  --metrics_.nodes;
  node.parent->children.erase(owner);
}

void PrefixTree::prune(Node* node) {
  while (!node->is_root() && node->is_leaf() && node->pins == 0 && useless(*node)) {
    Node* parent = node->parent;
    remove_leaf(*node);
    node = parent;
  }
  if (node->is_root() && node->is_leaf() && node->pins == 0) roots_.erase(*node->space);
}

PrefixLock PrefixTree::lock(Node& node) {
  ++locks_;
  ++node.locks;
  pin(node);
  return {*this, node};
}

void PrefixTree::unlock(Node& node) {
  --locks_;
  --node.locks;
  unpin(node);
  prune(&node);
}

void PrefixTree::pin(Node& node) {
  for (Node* n = &node; n != nullptr && n->pins++ == 0; n = n->parent) {
    if (n->is_root()) continue;
    order_.remove(*n);
    count_pinned(*n, 1);
  }
}

void PrefixTree::unpin(Node& node) {
  for (Node* n = &node; n != nullptr && --n->pins == 0; n = n->parent) {
    if (n->is_root()) continue;
    order_.add(*n);
    count_pinned(*n, -1);
  }
}

void PrefixTree::count_pinned(const Node& node, std::int64_t sign) {
  for (std::size_t p = 0; p < num_pools(); ++p) pinned_[p] += sign * node.pools[p].present;
}

}  // namespace attune::cache
