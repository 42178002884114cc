#include "backends/shared/cuda/score_list.hpp"

#include <algorithm>

#include "base/math.hpp"

namespace attune::backends::shared::cuda {
namespace {

namespace scores = kernels::index_scores::sm90;

std::int64_t tiles_of(const ScoreRules& rules, const scores::Group& group) {
  return base::ceil_div(group.keys, rules.keys_of_tile);
}

/// Cuts the tiles of groups `first` … into equal shares.
void share_out(const ScoreRules& rules, std::size_t first, ScoreList& list) {
  std::int64_t tiles = 0;
  for (std::size_t g = first; g < list.groups.size(); ++g) tiles += tiles_of(rules, list.groups[g]);
  std::size_t group = first;
  std::int64_t before = 0;  // tiles of the launch's groups in front of this one
  for (std::int64_t b = 0; b < rules.blocks; ++b) {
    const std::int64_t begin = tiles * b / rules.blocks;
    const std::int64_t end = tiles * (b + 1) / rules.blocks;
    while (begin < end && before + tiles_of(rules, list.groups[group]) <= begin)
      before += tiles_of(rules, list.groups[group++]);
    list.shares.push_back({.group = static_cast<std::int32_t>(group),
                           .tile = static_cast<std::int32_t>(begin - before),
                           .tiles = static_cast<std::int32_t>(end - begin)});
  }
}

}  // namespace

void list_scores(std::span<const std::int32_t> visible, std::span<const std::int32_t> entry_begin,
                 const ScoreRules& rules, ScoreList& list) {
  list.groups.clear();
  list.shares.clear();
  const auto tokens = static_cast<std::int64_t>(visible.size());
  for (std::int64_t first = 0; first < tokens; first += rules.rows) {
    const std::size_t first_group = list.groups.size();
    const auto end = static_cast<std::size_t>(std::min(first + rules.rows, tokens));
    for (auto t = static_cast<std::size_t>(first); t < end;) {
      std::size_t next = t + 1;
      if (visible[t] > rules.topk) {
        // What a token sees its request's next one sees too.
        while (next < end && next - t < static_cast<std::size_t>(rules.tokens_per_group) &&
               entry_begin[next] == entry_begin[t] && visible[next] >= visible[t])
          ++next;
        list.groups.push_back({.first_token = static_cast<std::int32_t>(t),
                               .num_tokens = static_cast<std::int32_t>(next - t),
                               .entry_begin = entry_begin[t],
                               .keys = visible[next - 1]});
      }
      t = next;
    }
    share_out(rules, first_group, list);
  }
}

}  // namespace attune::backends::shared::cuda
