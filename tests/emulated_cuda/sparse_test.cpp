// What sparse latents add in front of the latent kernels: keys chosen by clusters of blocks, and
// the shares in which tiles are scored.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "backends/shared/cuda/score_list.hpp"
#include "kernels/top_k/sm90/launch.hpp"
#include "kernels/top_k/top_k.hpp"

namespace attune {
namespace {

/// Few different numbers, so that the threshold is shared by many.
float draw(std::mt19937& random) {
  switch (random() % 40) {
    case 0: return std::numeric_limits<float>::quiet_NaN();
    case 1: return std::numeric_limits<float>::infinity();
    case 2: return -std::numeric_limits<float>::infinity();
    case 3: return -0.0f;
    case 4: return std::ldexp(1.0f, -140);
    default: return static_cast<float>(static_cast<int>(random() % 64) - 32) * 0.25f;
  }
}

TEST(Sparse, ClustersKeepWhatOneThreadKeeps) {
  namespace gpu = kernels::top_k::sm90;
  constexpr std::int32_t kPage = 3;
  std::mt19937 random(5);
  for (const int sharers : {1, 2, 4, 8})
    for (const int topk : {1, 33, 200}) {
      // Rows of every length that may go wrong: none, all kept, one too many, runs of no key.
      const std::vector<std::int32_t> visible{0, 1, topk, topk + 1, 31, 257, 1000, 4099};
      const auto tokens = static_cast<std::int32_t>(visible.size());
      constexpr std::int64_t kStride = 4100;
      std::vector<float> scores(static_cast<std::size_t>(kStride) * visible.size());
      for (float& x : scores) x = draw(random);
      std::vector<std::int32_t> pages(kStride / kPage + 1);
      for (std::size_t i = 0; i < pages.size(); ++i)
        pages[i] = static_cast<std::int32_t>(2 * pages.size() - 2 * i);
      const std::vector<std::int32_t> entry_begin(visible.size(), 0);
      const auto room = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(topk);
      std::vector<std::int32_t> lists(room, -7), slots(room, -7), kept(visible.size(), -7);
      const gpu::Params params{.scores = scores.data(),
                               .scores_stride = kStride,
                               .lists = lists.data(),
                               .lists_stride = topk,
                               .kv_indices = pages.data(),
                               .entry_begin = entry_begin.data(),
                               .visible = visible.data(),
                               .page_size = kPage,
                               .slots = slots.data(),
                               .slots_stride = topk,
                               .kept = kept.data(),
                               .num_tokens = tokens,
                               .topk = topk};
      ASSERT_TRUE(gpu::launch_choose(params, sharers, nullptr).ok());
      for (std::int32_t t = 0; t < tokens; ++t) {
        std::vector<std::int32_t> want(static_cast<std::size_t>(topk), -1);
        const std::int64_t count = kernels::top_k::keep_largest(
            scores.data() + t * kStride, visible[static_cast<std::size_t>(t)], topk, want.data());
        ASSERT_EQ(kept[static_cast<std::size_t>(t)], count);
        for (std::int64_t i = 0; i < topk; ++i) {
          const auto at = static_cast<std::size_t>(t * topk + i);
          const std::int32_t key = want[static_cast<std::size_t>(i)];
          ASSERT_EQ(lists[at], key) << sharers << " sharers, row " << t << ", entry " << i;
          if (i < count)
            ASSERT_EQ(slots[at],
                      pages[static_cast<std::size_t>(key / kPage)] * kPage + key % kPage);
        }
      }
    }
}

TEST(Sparse, EveryTileIsScoredOnce) {
  namespace scores = kernels::index_scores::sm90;
  const std::vector<std::int32_t> queries{5, 0, 1, 300, 2, 7};
  const std::vector<std::int32_t> keys{9, 400, 5000, 1000, 0, 2055};
  std::vector<std::int32_t> first_token{0}, visible, entry_begin;
  std::int32_t entries = 0;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    for (std::int32_t row = 0; row < queries[i]; ++row) {
      visible.push_back(std::max(0, keys[i] - queries[i] + row + 1));
      entry_begin.push_back(entries);
    }
    entries += keys[i];
    first_token.push_back(first_token.back() + queries[i]);
  }
  for (const std::int64_t rows : {1, 4, 37, 1000})
    for (const std::int32_t tokens_per_group : {1, 4, 8})
      for (const std::int32_t blocks : {1, 3, 132}) {
        const backends::shared::cuda::ScoreRules rules{
            .topk = 800, .rows = rows, .tokens_per_group = tokens_per_group, .blocks = blocks};
        backends::shared::cuda::ScoreList list;
        backends::shared::cuda::list_scores(visible, entry_begin, rules, list);
        std::map<std::pair<std::int32_t, std::int64_t>, int> times;
        for (std::size_t s = 0; s < list.shares.size(); ++s) {
          scores::Share share = list.shares[s];
          const auto launch = static_cast<std::int64_t>(s) / blocks;
          for (; share.tiles > 0; --share.tiles) {
            const scores::Group& group = list.groups.at(static_cast<std::size_t>(share.group));
            for (std::int32_t t = 0; t < group.num_tokens; ++t) {
              ASSERT_EQ((group.first_token + t) / rows, launch);
              ++times[{group.first_token + t, share.tile}];
            }
            if (++share.tile * scores::kKeys >= group.keys) {
              share.tile = 0;
              ++share.group;
            }
          }
        }
        std::size_t expected = 0;
        for (std::size_t i = 0; i < queries.size(); ++i)
          for (std::int32_t row = 0; row < queries[i]; ++row) {
            const std::int32_t seen = keys[i] - queries[i] + row + 1;
            for (std::int64_t tile = 0; seen > rules.topk && tile * scores::kKeys < seen; ++tile) {
              ++expected;
              ASSERT_EQ((times[{first_token[i] + row, tile}]), 1)
                  << "token " << first_token[i] + row;
            }
          }
        // A token may meet a tile more, for its group's last one sees further.
        ASSERT_LE(times.size(), expected + list.groups.size() * 8);
      }
}

}  // namespace
}  // namespace attune
