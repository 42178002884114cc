#include "registry/nearest.hpp"

#include <algorithm>

namespace attune::registry {

int edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<int> cells((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> int& { return cells[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i);
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({replaced, at(i - 1, j) + 1, at(i, j - 1) + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

std::vector<std::string_view> nearest(std::string_view word,
                                      std::span<const std::string_view> names) {
  struct Near {
    int distance;
    std::string_view name;
  };
  const int farthest = std::max(2, static_cast<int>(word.size()) / 3);
  std::vector<Near> found;
  for (std::string_view name : names) {
    int distance = edit_distance(word, name);
    // The beginning of a name is as good as one slip.
    if (word.size() >= 3 && name.starts_with(word)) distance = std::min(distance, 1);
    if (distance <= farthest) found.push_back({distance, name});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Near& x, const Near& y) { return x.distance < y.distance; });
  constexpr std::size_t kMost = 3;
  std::vector<std::string_view> result;
  for (std::size_t i = 0; i < found.size() && i < kMost; ++i) result.push_back(found[i].name);
  return result;
}

}  // namespace attune::registry
