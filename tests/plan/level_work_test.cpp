// Levels as work for a GPU: every key met once by every row, every state joined once.
#include "plan/level_work.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "plan/paged_batch.hpp"

namespace attune::plan {
namespace {

constexpr std::int32_t kPage = 16;
const PrefillShape kShape{.num_kv_heads = 2, .gqa_group_size = 3, .workers = 64};

/// Decodes and short extends of a 40-page prefix; the first two share five pages more.
struct Batch : PagedBatch {
  Batch()
      : PagedBatch(BatchForm::mixed, kPage, {{1, 720}, {4, 800}, {1, 641}, {30, 640}, {2, 90}}, 0) {
    view.prefix_groups = groups;
  }
  std::vector<PrefixGroup> groups{{0, 4, 40}, {0, 2, 45}};
};

Cascade all_levels(const Batch& batch, const std::vector<attention::TokenRule>& rules) {
  std::vector<attention::KeyRange> visible;
  for (const auto& rule : rules) visible.push_back({rule.begin, rule.end});
  return find_levels(batch.view, visible, {.rows_a_token = 3, .units = 2}, CascadeMode::always,
                     1 << 20);
}

TEST(LevelWork, EveryRowMeetsEveryKeyOnce) {
  const Batch batch;
  std::vector<attention::TokenRule> rules;
  list_token_rules(batch.view, {.causal = true}, 0, rules);
  const Cascade cascade = all_levels(batch, rules);
  ASSERT_EQ(cascade.levels.size(), 2u);
  const std::int64_t tokens = batch.view.num_qo_tokens();
  for (const std::int64_t room : {4 * tokens, 40 * tokens}) {
    const auto places = place_levels(cascade, kShape, tokens, room);
    PrefillList list;
    list_prefill_work(batch.view, {.causal = true}, kShape, cascade, list);
    list_level_work(batch.view, cascade, places, kShape, list);
    StateList states;
    list_states(batch.view, cascade, places, states);
    ASSERT_EQ(states.first.size(), static_cast<std::size_t>(tokens) + 1);
    EXPECT_LT(*std::max_element(states.rows.begin(), states.rows.end()), room);
    EXPECT_EQ(std::set<std::int32_t>(states.rows.begin(), states.rows.end()).size(),
              states.rows.size());

    // (state row, head of the group) → keys.
    std::map<std::pair<std::int32_t, std::int32_t>, std::set<std::int32_t>> met;
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> count;
    for (const auto& item : list.items) {
      for (std::int32_t row = item.row_begin;
           row < std::min(item.row_begin + kShape.rows, item.qo_len * 3); ++row) {
        const std::int32_t token = row / 3;
        const auto& rule = rules[static_cast<std::size_t>(item.q_row + token)];
        for (std::int32_t key = std::max(item.kv_begin, rule.begin);
             key < std::min(item.kv_end, rule.end); ++key) {
          met[{item.o_row + token, row % 3}].insert(key);
          ++count[{item.o_row + token, row % 3}];
        }
      }
    }
    for (std::int64_t i = 0; i < batch.view.batch_size(); ++i) {
      for (std::int32_t t = batch.qo_indptr[i]; t < batch.qo_indptr[i + 1]; ++t) {
        for (std::int32_t head = 0; head < 3; ++head) {
          std::size_t total = 0;
          std::set<std::int32_t> keys;
          for (std::int32_t n = states.first[t]; n < states.first[t + 1]; ++n) {
            const auto& part = met[{states.rows[n], head}];
            keys.insert(part.begin(), part.end());
            total += count[{states.rows[n], head}];
          }
          // A decode's own keys are the decode kernel's.
          const auto begin = static_cast<std::size_t>(
              batch.view.qo_len(i) == 1
                  ? rules[t].end - std::min<std::int64_t>(rules[t].end, cascade.own_begin(i))
                  : 0);
          const auto wanted = static_cast<std::size_t>(rules[t].end - rules[t].begin) - begin;
          EXPECT_EQ(keys.size(), wanted) << "token " << t;
          EXPECT_EQ(total, wanted) << "token " << t;
        }
      }
    }
  }
}

TEST(LevelWork, LongLevelsAreCutForEveryWorker) {
  const Cascade cascade{.levels = {{.num_requests = 64, .num_tokens = 64, .keys = {0, 32768}}},
                        .innermost = {}};
  const PrefillShape shape{.num_kv_heads = 8, .gqa_group_size = 4, .workers = 264};
  EXPECT_EQ(place_levels(cascade, shape, 64, 1 << 20)[0].parts, 8);
  // No room for more than one state a token.
  EXPECT_EQ(place_levels(cascade, shape, 64, 64 + 127)[0].parts, 1);
  EXPECT_EQ(place_levels(cascade, shape, 64, 64 + 128)[0].parts, 2);
}

}  // namespace
}  // namespace attune::plan
