#include "conformance/pairwise.hpp"

#include <set>
#include <utility>

#include "conformance/problem.hpp"

namespace attune::conformance {
namespace {

using Value = std::pair<int, int>;  // factor, value
using Pair = std::pair<Value, Value>;

Pair ordered(Value a, Value b) { return a < b ? Pair{a, b} : Pair{b, a}; }

int pairs_held(const FactorRow& row, Value added, const std::set<Pair>& open) {
  int count = 0;
  for (int f = 0; f < static_cast<int>(row.size()); ++f) {
    const int v = row[static_cast<std::size_t>(f)];
    if (v != kUnset && f != added.first && open.contains(ordered({f, v}, added))) ++count;
  }
  return count;
}

/// Fills the unset factors; false if some factor has no feasible value left.
bool complete(FactorRow& row, const std::vector<int>& sizes, const std::set<Pair>& open,
              const std::function<bool(const FactorRow&)>& feasible, Random& random) {
  std::vector<int> order;
  for (int f = 0; f < static_cast<int>(sizes.size()); ++f)
    if (row[static_cast<std::size_t>(f)] == kUnset) order.push_back(f);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1],
              order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  for (const int f : order) {
    int best = kUnset;
    int most = -1;
    const int size = sizes[static_cast<std::size_t>(f)];
    const auto first = static_cast<int>(random.below(size));
    for (int n = 0; n < size; ++n) {
      const int v = (first + n) % size;
      row[static_cast<std::size_t>(f)] = v;
      if (!feasible(row)) continue;
      const int held = pairs_held(row, {f, v}, open);
      if (held > most) {
        most = held;
        best = v;
      }
    }
    row[static_cast<std::size_t>(f)] = best;
    if (best == kUnset) return false;
  }
  return true;
}

}  // namespace

std::vector<FactorRow> pairwise(const std::vector<int>& sizes,
                                const std::function<bool(const FactorRow&)>& feasible,
                                std::uint64_t seed) {
  Random random(seed);
  std::set<Pair> open;
  const int factors = static_cast<int>(sizes.size());
  for (int f = 0; f < factors; ++f)
    for (int g = f + 1; g < factors; ++g)
      for (int a = 0; a < sizes[static_cast<std::size_t>(f)]; ++a)
        for (int b = 0; b < sizes[static_cast<std::size_t>(g)]; ++b) open.insert({{f, a}, {g, b}});

  std::vector<FactorRow> rows;
  constexpr int kTries = 8;
  while (!open.empty()) {
    const Pair start = *open.begin();
    bool found = false;
    for (int attempt = 0; attempt < kTries && !found; ++attempt) {
      FactorRow row(sizes.size(), kUnset);
      row[static_cast<std::size_t>(start.first.first)] = start.first.second;
      row[static_cast<std::size_t>(start.second.first)] = start.second.second;
      if (!feasible(row)) break;
      if (!complete(row, sizes, open, feasible, random)) continue;
      found = true;
      for (int f = 0; f < factors; ++f)
        for (int g = f + 1; g < factors; ++g)
          open.erase(
              {{f, row[static_cast<std::size_t>(f)]}, {g, row[static_cast<std::size_t>(g)]}});
      rows.push_back(std::move(row));
    }
    if (!found) open.erase(start);
  }
  return rows;
}

std::vector<std::size_t> each_value_once(const std::vector<FactorRow>& rows) {
  std::set<Value> open;
  for (const FactorRow& row : rows)
    for (std::size_t f = 0; f < row.size(); ++f) open.insert({static_cast<int>(f), row[f]});
  std::vector<std::size_t> chosen;
  while (!open.empty()) {
    std::size_t best = 0;
    std::size_t most = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::size_t held = 0;
      for (std::size_t f = 0; f < rows[r].size(); ++f)
        held += open.count({static_cast<int>(f), rows[r][f]});
      if (held > most) {
        most = held;
        best = r;
      }
    }
    chosen.push_back(best);
    for (std::size_t f = 0; f < rows[best].size(); ++f)
      open.erase({static_cast<int>(f), rows[best][f]});
  }
  return chosen;
}

}  // namespace attune::conformance
