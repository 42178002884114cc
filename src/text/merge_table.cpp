#include "text/merge_table.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>

namespace attune::text {
namespace {

// Up to here a scan for the best pair beats a heap: words of a text are seldom longer.
constexpr std::size_t kShort = 32;

}  // namespace

void MergeTable::apply(std::span<TokenId> symbols, std::vector<TokenId>& out) const {
  if (symbols.size() <= kShort) {
    apply_short(symbols, out);
  } else {
    apply_long(symbols, out);
  }
}

void MergeTable::apply_short(std::span<TokenId> symbols, std::vector<TokenId>& out) const {
  std::size_t count = symbols.size();
  std::array<Merge, kShort> pairs;  // pairs[i] joins symbols i and i + 1
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const auto end = pairs.begin() + static_cast<std::ptrdiff_t>(count - 1);
    const auto best = std::min_element(
        pairs.begin(), end, [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->result < 0) break;
    const auto i = static_cast<std::size_t>(best - pairs.begin());
    symbols[i] = best->result;
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(i + 2),
              symbols.begin() + static_cast<std::ptrdiff_t>(count),
              symbols.begin() + static_cast<std::ptrdiff_t>(i + 1));
    std::copy(best + 1, end, best);
    --count;
    if (i > 0) pairs[i - 1] = find(symbols[i - 1], symbols[i]);
    if (i + 1 < count) pairs[i] = find(symbols[i], symbols[i + 1]);
  }
  out.insert(out.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

void MergeTable::apply_long(std::span<TokenId> symbols, std::vector<TokenId>& out) const {
  // A linked list of live symbols and a heap of candidate pairs, ordered by (rank, position). A
  // candidate is stale when the pair now at its position no longer has its rank.
  constexpr TokenId kGone = -1;
  const auto count = static_cast<std::uint32_t>(symbols.size());
  std::vector<std::uint32_t> next(count), previous(count);
  std::vector<std::uint64_t> initial;
  initial.reserve(count);
  const auto candidate = [](const Merge& merge, std::uint32_t position) {
    return std::uint64_t{merge.rank} << 32 | position;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
    if (i + 1 == count) break;
    const Merge merge = find(symbols[i], symbols[i + 1]);
    if (merge.result >= 0) initial.push_back(candidate(merge, i));
  }
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> heap(
      std::greater<>{}, std::move(initial));

  while (!heap.empty()) {
    const auto position = static_cast<std::uint32_t>(heap.top());
    const auto rank = static_cast<std::uint32_t>(heap.top() >> 32);
    heap.pop();
    const std::uint32_t right = next[position];
    if (symbols[position] == kGone || right >= count) continue;
    const Merge merge = find(symbols[position], symbols[right]);
    if (merge.result < 0 || merge.rank != rank) continue;

    symbols[position] = merge.result;
    symbols[right] = kGone;
    const std::uint32_t after = next[right];
    next[position] = after;
    if (after < count) {
      previous[after] = position;
      const Merge follow = find(merge.result, symbols[after]);
      if (follow.result >= 0) heap.push(candidate(follow, position));
    }
    if (const std::uint32_t before = previous[position]; before < count) {
      const Merge lead = find(symbols[before], merge.result);
      if (lead.result >= 0) heap.push(candidate(lead, before));
    }
  }
  std::copy_if(symbols.begin(), symbols.end(), std::back_inserter(out),
               [](TokenId id) { return id != kGone; });
}

}  // namespace attune::text
