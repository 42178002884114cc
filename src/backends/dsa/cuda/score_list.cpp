#include "backends/dsa/cuda/score_list.hpp"

#include <algorithm>

#include "base/math.hpp"

namespace attune::backends::dsa {
namespace {

namespace scores = kernels::index_scores::sm90;

std::int64_t tiles_of(const scores::Group& group) {
  return base::ceil_div(group.keys, scores::kKeys);
}

/// Cuts the tiles of groups `first` … into equal shares.
void share_out(const ScoreRules& rules, std::size_t first, ScoreList& list) {
  std::int64_t tiles = 0;
  for (std::size_t g = first; g < list.groups.size(); ++g) tiles += tiles_of(list.groups[g]);
  std::size_t group = first;
  std::int64_t before = 0;  // tiles of the launch's groups in front of this one
  for (std::int64_t b = 0; b < rules.blocks; ++b) {
    const std::int64_t begin = tiles * b / rules.blocks;
    const std::int64_t end = tiles * (b + 1) / rules.blocks;
    while (begin < end && before + tiles_of(list.groups[group]) <= begin)
      before += tiles_of(list.groups[group++]);
    list.shares.push_back({.group = static_cast<std::int32_t>(group),
                           .tile = static_cast<std::int32_t>(begin - before),
                           .tiles = static_cast<std::int32_t>(end - begin)});
  }
}

}  // namespace

void list_scores(const BatchView& batch, const ScoreRules& rules, ScoreList& list) {
  list.groups.clear();
  list.shares.clear();
  std::size_t first_group = 0;
  std::int64_t launch_end = rules.rows;
  std::int64_t token = 0;
  const auto end_launch = [&] {
    share_out(rules, first_group, list);
    first_group = list.groups.size();
    launch_end += rules.rows;
  };
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t queries = batch.qo_len(i);
    const std::int64_t seen_before =
        batch.kv_len(i) - queries;  // by the token in front of the first
    for (std::int64_t row = 0; row < queries;) {
      if (token == launch_end) end_launch();
      std::int64_t count = std::min(queries - row, launch_end - token);
      if (seen_before + row + 1 <= rules.topk) {
        count = std::min(count, rules.topk - seen_before - row);
      } else {
        count = std::min<std::int64_t>(count, rules.tokens_per_group);
        list.groups.push_back({.first_token = static_cast<std::int32_t>(token),
                               .num_tokens = static_cast<std::int32_t>(count),
                               .entry_begin = batch.kv_indptr[static_cast<std::size_t>(i)],
                               .keys = static_cast<std::int32_t>(seen_before + row + count)});
      }
      row += count;
      token += count;
    }
  }
  if (token > 0) end_launch();
}

}  // namespace attune::backends::dsa
