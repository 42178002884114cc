#include <iterator>

#include "base/join.hpp"
#include "cache/prefix_tree.hpp"

namespace attune::cache {

std::int64_t PrefixTree::round_hit(std::int64_t position) const {
  return position / granule_ * granule_;
}

std::int64_t PrefixTree::first_needed(std::size_t p, std::int64_t next) const {
  return bounded(p) ? round_hit(attention::first_needed_key(rules_[p], next)) : 0;
}

std::int64_t PrefixTree::last_absent(const Node& node, std::size_t p, std::int64_t from,
                                     std::int64_t to) const {
  for (const Node* n = &node; !n->is_root() && n->end() > from; n = n->parent) {
    const NodePages& own = n->pools[p];
    if (own.present == static_cast<std::int64_t>(own.pages.size())) continue;
    const std::int64_t first = (std::max(from, n->begin) - n->begin) / page_size();
    for (std::int64_t i = (std::min(to, n->end()) - n->begin) / page_size(); i-- > first;)
      if (own.pages[static_cast<std::size_t>(i)] == kAbsent) return n->begin + i * page_size();
  }
  return -1;
}

std::int64_t PrefixTree::usable(Node& node, std::int64_t matched) const {
  Node* n = &node;
  std::int64_t hit = round_hit(matched);
  while (hit > 0) {
    n = &node_at(*n, hit);
    if (options_.needs_checkpoints) {
      // The last checkpoint of this node that is not behind the hit; else of an ancestor.
      const auto behind = std::ranges::find_if(
          n->checkpoints, [&](const auto& checkpoint) { return checkpoint->position > hit; });
      if (behind == n->checkpoints.begin()) {
        hit = round_hit(n->begin);
        continue;
      }
      const std::int64_t position = (*std::prev(behind))->position;
      if (position < hit) {
        hit = position;
        continue;
      }
    }
    // Where a page is missing, no hit behind it can use it, as windows only move forward.
    std::int64_t absent = -1;
    for (std::size_t p = 0; p < num_pools() && absent < 0; ++p)
      if (bounded(p)) absent = last_absent(*n, p, first_needed(p, hit), hit);
    if (absent < 0) return hit;
    hit = round_hit(absent);
  }
  return 0;
}

PrefixRow PrefixTree::collect(const Node& node, std::size_t p, std::int64_t end) {
  PrefixRow row{.pages = {}, .first_position = first_needed(p, end)};
  row.pages.resize(static_cast<std::size_t>((end - row.first_position) / page_size()));
  auto out = row.pages.end();
  for (const Node* n = &node; out != row.pages.begin(); n = n->parent) {
    const auto pages = n->pools[p].pages.view();
    const auto count = std::min(static_cast<std::ptrdiff_t>(pages.size()), out - row.pages.begin());
    out -= count;
    std::copy(pages.end() - count, pages.end(), out);
    if (bounded(p))
      window_order_[p].splice(window_order_[p].end(), window_order_[p], n->pools[p].place);
  }
  require(pool(p).retain(row.pages).ok(), "the tree holds its pages");
  return row;
}

void PrefixTree::use(Node& node, std::int64_t priority) {
  for (Node* n = &node; !n->is_root(); n = n->parent) {
    const std::int64_t rank = options_.policy == EvictionPolicy::lfu ? n->rank + 1
                              : options_.policy == EvictionPolicy::priority
                                  ? std::max(n->rank, priority)
                                  : n->rank;
    if (n->pins == 0)
      order_.touch(*n, rank);
    else
      n->rank = rank;
  }
}

PrefixMatch PrefixTree::match(const CacheNamespace& space, Tokens tokens,
                              const MatchOptions& options) {
  PrefixMatch match = find(space, tokens, options);
  if (options.count) count_lookup(std::ssize(tokens), match.num_tokens + match.partial_tokens);
  return match;
}

void PrefixTree::count_lookup(std::int64_t tokens, std::int64_t hit_tokens) {
  ++metrics_.lookups;
  metrics_.lookup_tokens += tokens;
  if (hit_tokens > 0) ++metrics_.hits;
  metrics_.hit_tokens += hit_tokens;
}

PrefixMatch PrefixTree::find(const CacheNamespace& space, Tokens tokens,
                             const MatchOptions& options) {
  const auto length = std::clamp<std::int64_t>(options.max_tokens, 0, std::ssize(tokens));
  PrefixMatch match;
  match.rows.resize(num_pools());
  const auto root = roots_.find(space);
  if (root == roots_.end()) return match;
  const Tokens wanted = tokens.first(static_cast<std::size_t>(length));
  Walk end = walk(*root->second, wanted);
  match.known_tokens = end.matched;
  match.num_tokens = usable(*end.node, end.matched);
  if (match.num_tokens > 0) {
    Node& node = ending_at(*end.node, match.num_tokens);
    use(node, INT64_MIN);
    for (std::size_t p = 0; p < num_pools(); ++p)
      match.rows[p] = collect(node, p, match.num_tokens);
    if (options_.needs_checkpoints) {
      const CheckpointList::iterator last = node.checkpoints.back();
      match.checkpoint = last->state;
      checkpoints_.splice(checkpoints_.end(), checkpoints_, last);
    }
    match.lock = lock(node);
    end.node = &node;
  }
  if (options.partial_page && match.num_tokens == end.matched)
    match_partial(end, wanted.subspan(static_cast<std::size_t>(end.matched)), match);
  return match;
}

void PrefixTree::match_partial(const Walk& walk, Tokens rest, PrefixMatch& match) {
  if (granule_ != page_size() || options_.needs_checkpoints || rest.empty()) return;
  // Children are sorted, so that the longest common beginning is a neighbour's.
  const auto& children = walk.node->children;
  const auto next = children.lower_bound(rest);
  const Node* best = nullptr;
  const auto consider = [&](const std::unique_ptr<Node>& child) {
    const Tokens first = children.key_comp().key(child);
    const auto common = std::ranges::mismatch(first, rest).in1 - first.begin();
    const bool present = std::ranges::all_of(
        child->pools, [](const NodePages& own) { return own.pages[0] != kAbsent; });
    if (!present || common <= match.partial_tokens) return;
    match.partial_tokens = common;
    best = child.get();
  };
  if (next != children.end()) consider(*next);
  if (next != children.begin()) consider(*std::prev(next));
  if (best == nullptr) return;
  for (std::size_t p = 0; p < num_pools(); ++p) {
    match.partial_pages.push_back(best->pools[p].pages[0]);
    require(pool(p).retain(std::span(match.partial_pages).last(1)).ok(),
            "the tree holds its pages");
  }
}

Status PrefixTree::check_rows(Tokens tokens, std::span<const RowView> rows,
                              const InsertOptions& options) const {
  const std::int64_t whole = std::ssize(tokens) / page_size() * page_size();
  if (rows.size() != num_pools())
    return invalid_argument(
        base::join("wanted a row for each of ", num_pools(), " pools, have ", rows.size()));
  if (options.checkpoint != nullptr && std::ssize(tokens) % granule_ != 0)
    return invalid_argument(base::join("a checkpoint after ", tokens.size(),
                                       " tokens: wanted a multiple of ", granule_));
  for (std::size_t p = 0; p < num_pools(); ++p) {
    const RowView& row = rows[p];
    const bool begins_well = row.first_position >= 0 && row.first_position % page_size() == 0 &&
                             (bounded(p) || row.first_position == 0);
    if (!begins_well)
      return invalid_argument(base::join("the row of pool ", p, " begins at position ",
                                         row.first_position, ": wanted ",
                                         bounded(p) ? "a multiple of the page size" : "0"));
    if (row.first_position + std::ssize(row.pages) * page_size() < whole)
      return invalid_argument(base::join("the row of pool ", p, " has ", row.pages.size(),
                                         " pages from position ", row.first_position, ": too few",
                                         " for ", whole, " tokens"));
    for (const PageId page : row.pages)
      if (pool(p).holders(page) == 0)
        return invalid_argument(base::join("page ", static_cast<std::int32_t>(page), " of pool ", p,
                                           " is not held: the row must hold its pages"));
  }
  return {};
}

Result<PrefixInsertion> PrefixTree::insert(const CacheNamespace& space, Tokens tokens,
                                           std::span<const RowView> rows,
                                           const InsertOptions& options) {
  if (Status s = check_rows(tokens, rows, options); !s.ok()) return s;
  PrefixInsertion result;
  result.num_tokens = std::ssize(tokens) / page_size() * page_size();
  const Tokens whole = tokens.first(static_cast<std::size_t>(result.num_tokens));
  const Tokens rest = tokens.subspan(whole.size());
  const bool partial = options.keep_partial_page && !rest.empty();
  if (whole.empty() && !partial) return result;

  const auto [root, is_new] = roots_.try_emplace(space);
  if (is_new) {
    root->second = std::make_unique<Node>(static_cast<std::size_t>(page_size()));
    root->second->space = &root->first;
  }
  const Walk end = walk(*root->second, whole);
  result.known_tokens = end.matched;
  Node* node = end.node;
  reconcile(*node, end.matched, rows, result);
  // Where the key ends inside a node, a lock on the whole node would protect too much.
  if (end.matched > 0) node = &ending_at(*node, end.matched);
  use(*node, options.priority);
  if (end.matched < result.num_tokens) {
    const Tokens added = whole.subspan(static_cast<std::size_t>(end.matched));
    drop_partial(*node, added);
    node = &add_leaf(*node, added, rows, options.priority);
  }
  if (!node->is_root()) result.lock = lock(*node);
  if (partial) add_partial(*node, rest, rows, options.priority);
  if (options.checkpoint != nullptr) add_checkpoint(*node, result.num_tokens, options);
  prune(node);
  return result;
}

void PrefixTree::reconcile(Node& node, std::int64_t end, std::span<const RowView> rows,
                           PrefixInsertion& result) {
  for (Node* n = &node; !n->is_root(); n = n->parent) {
    for (std::size_t p = 0; p < num_pools(); ++p) {
      const RowView& row = rows[p];
      NodePages& own = n->pools[p];
      const std::int64_t last = (std::min(end, n->end()) - n->begin) / page_size();
      for (std::int64_t i = std::max<std::int64_t>(0, row.first_position - n->begin) / page_size();
           i < last; ++i) {
        const std::int64_t at = (n->begin - row.first_position) / page_size() + i;
        const PageId mine = row.pages[static_cast<std::size_t>(at)];
        PageId& kept = own.pages[static_cast<std::size_t>(i)];
        if (kept == mine) continue;
        if (kept != kAbsent) {
          result.duplicates.push_back(
              {.pool = p, .index = static_cast<std::size_t>(at), .kept = kept});
          ++metrics_.duplicate_pages;
          continue;
        }
        require(pool(p).retain({&mine, 1}).ok(), "rows that were checked hold their pages");
        kept = mine;
        ++held_[p];
        if (n->pins > 0) ++pinned_[p];
        if (own.present++ == 0)
          own.place = window_order_[p].insert(window_order_[p].end(), n);
        else
          window_order_[p].splice(window_order_[p].end(), window_order_[p], own.place);
      }
    }
  }
}

void PrefixTree::add_partial(Node& parent, Tokens rest, std::span<const RowView> rows,
                             std::int64_t priority) {
  if (granule_ != page_size() || options_.needs_checkpoints) return;
  for (const RowView& row : rows) {
    const std::int64_t page = (parent.end() - row.first_position) / page_size();
    if (parent.end() < row.first_position || page >= std::ssize(row.pages)) return;
  }
  // A sibling that begins with these tokens has them already.
  const auto next = parent.children.lower_bound(rest);
  if (next != parent.children.end()) {
    const Tokens first = parent.children.key_comp().key(*next);
    if (std::ranges::mismatch(rest, first).in1 == rest.end()) return;
  }
  drop_partial(parent, rest);
  add_leaf(parent, rest, rows, priority);
}

void PrefixTree::drop_partial(Node& parent, Tokens longer) {
  // No partial page is the beginning of a sibling, so that only the neighbour can be of `longer`.
  const auto next = parent.children.lower_bound(longer);
  if (next == parent.children.begin()) return;
  Node& before = **std::prev(next);
  const Tokens tokens = before.tokens.view();
  if (before.num_tokens() >= page_size()) return;
  if (std::ranges::mismatch(tokens, longer).in1 == tokens.end()) remove_leaf(before);
}

void PrefixTree::add_checkpoint(Node& node, std::int64_t position, const InsertOptions& options) {
  if (!node.checkpoints.empty() && node.checkpoints.back()->position == position) {
    checkpoints_.splice(checkpoints_.end(), checkpoints_, node.checkpoints.back());
    return;
  }
  if (options.checkpoint_bytes > options_.max_checkpoint_bytes) return;
  while (metrics_.checkpoint_bytes + options.checkpoint_bytes > options_.max_checkpoint_bytes)
    drop_checkpoint(checkpoints_.begin());
  node.checkpoints.push_back(
      checkpoints_.insert(checkpoints_.end(), {.node = &node,
                                               .position = position,
                                               .bytes = options.checkpoint_bytes,
                                               .state = options.checkpoint}));
  ++metrics_.checkpoints;
  metrics_.checkpoint_bytes += options.checkpoint_bytes;
}

}  // namespace attune::cache
