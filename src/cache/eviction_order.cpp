#include "cache/eviction_order.hpp"

#include <iterator>

namespace attune::cache {

void EvictionOrder::add(Node& node) {
  std::list<Node*>& list = by_rank_[node.rank];
  node.place = list.insert(list.end(), &node);
}

void EvictionOrder::remove(Node& node) {
  const auto rank = by_rank_.find(node.rank);
  rank->second.erase(node.place);
  if (rank->second.empty()) by_rank_.erase(rank);
}

void EvictionOrder::add_after(Node& node, const Node& before) {
  node.rank = before.rank;
  node.place = by_rank_.find(node.rank)->second.insert(std::next(before.place), &node);
}

void EvictionOrder::touch(Node& node, std::int64_t rank) {
  const auto old = by_rank_.find(node.rank);
  std::list<Node*>& target = by_rank_[rank];
  target.splice(target.end(), old->second, node.place);
  if (old->second.empty()) by_rank_.erase(old);
  node.rank = rank;
}

}  // namespace attune::cache
