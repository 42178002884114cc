// Block-sparse attention's own kernels on the emulated card: scores of blocks, and the choice of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "backends/shared/cuda/score_list.hpp"
#include "base/math.hpp"
#include "kernels/block_lists/sm80/launch.hpp"
#include "kernels/block_scores/sm80/launch.hpp"
#include "kernels/top_k/top_k.hpp"

namespace attune {
namespace {

namespace scores = kernels::block_scores::sm80;
namespace lists = kernels::block_lists::sm80;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Few different numbers, so that the threshold is shared by many.
float draw(std::mt19937& random) {
  switch (random() % 40) {
    case 0: return std::numeric_limits<float>::quiet_NaN();
    case 1: return kInfinity;
    case 2: return -kInfinity;
    case 3: return -0.0f;
    case 4: return std::ldexp(1.0f, -140);
    default: return static_cast<float>(static_cast<int>(random() % 64) - 32) * 0.25f;
  }
}

/// Lists of rows that see different numbers of keys, pages of the cache of kPage keys.
struct Lists {
  static constexpr std::int32_t kHeads = 2;
  static constexpr std::int32_t kPage = 6;
  static constexpr std::int32_t kBlock = 4;
  static constexpr std::int32_t kPart = 2;  // of both

  int topk, init, local;
  std::vector<std::int32_t> visible;
  std::int64_t max_blocks;
  std::vector<std::int32_t> pages, entry_begin, blocks, parts, kept;
  std::vector<float> numbers;

  Lists(int k, int first, int last, std::vector<std::int32_t> seen)
      : topk(k),
        init(first),
        local(last),
        visible(std::move(seen)),
        max_blocks(base::ceil_div(*std::max_element(visible.begin(), visible.end()), kBlock)) {
    std::mt19937 random(7);
    pages.resize(static_cast<std::size_t>(max_blocks * kBlock / kPage + 2));
    for (std::size_t i = 0; i < pages.size(); ++i)
      pages[i] = static_cast<std::int32_t>(2 * pages.size() - 2 * i);
    entry_begin.assign(visible.size(), 0);
    const std::size_t all = visible.size() * kHeads;
    blocks.assign(all * static_cast<std::size_t>(topk), -7);
    parts.assign(all * static_cast<std::size_t>(topk * kBlock / kPart), -7);
    kept.assign(all, -7);
    numbers.resize(all * static_cast<std::size_t>(max_blocks));
    for (float& x : numbers) x = draw(random);
  }

  [[nodiscard]] lists::Params params() {
    return {.scores = numbers.data(),
            .scores_stride = max_blocks,
            .lists = blocks.data(),
            .lists_token_stride = kHeads * topk,
            .lists_head_stride = topk,
            .kv_indices = pages.data(),
            .entry_begin = entry_begin.data(),
            .visible = visible.data(),
            .page = base::FastDivisor(kPage),
            .part = base::FastDivisor(kPart),
            .parts_of_page = kPage / kPart,
            .pages = parts.data(),
            .pages_stride = topk * kBlock / kPart,
            .kept = kept.data(),
            .num_tokens = static_cast<std::int32_t>(visible.size()),
            .num_heads = kHeads,
            .block_size = kBlock,
            .topk = topk,
            .init_blocks = init,
            .local_blocks = local};
  }

  /// `want`: ascending.
  void expect_pages(std::size_t list, std::span<const std::int32_t> want) const {
    const std::int32_t seen = visible[list / kHeads];
    std::int32_t keys = 0;
    for (std::size_t n = 0; n < want.size(); ++n)
      for (std::int32_t i = 0; i < kBlock; ++i) {
        const std::int32_t key = want[n] * kBlock + i;
        if (key >= seen) continue;
        ++keys;
        if (key % kPart != 0) continue;
        const std::size_t at = list * static_cast<std::size_t>(topk * kBlock / kPart) +
                               n * (kBlock / kPart) + static_cast<std::size_t>(i / kPart);
        ASSERT_EQ(parts[at], pages[static_cast<std::size_t>(key / kPage)] * (kPage / kPart) +
                                 key % kPage / kPart);
      }
    ASSERT_EQ(kept[list], keys);
  }
};

TEST(BlockSparse, ChoosesWhatCpusChoose) {
  struct Keeps {
    int topk, init, local;
  };
  // More scores than a block's registers hold in the last; runs of no block and of one.
  for (const Keeps keeps : {Keeps{1, 0, 0}, Keeps{1, 0, 1}, Keeps{5, 2, 1}, Keeps{16, 0, 1},
                            Keeps{4, 2, 2}, Keeps{200, 1, 0}}) {
    Lists test(keeps.topk, keeps.init, keeps.local,
               {0, 1, 4, 4 * keeps.topk, 4 * keeps.topk + 1, 127, 4 * 257, 4 * 3000 - 1});
    ASSERT_TRUE(lists::launch_choose(test.params(), nullptr).ok());
    for (std::size_t list = 0; list < test.kept.size(); ++list) {
      const std::int64_t seen = test.visible[list / Lists::kHeads];
      const std::int64_t blocks = base::ceil_div<std::int64_t>(seen, Lists::kBlock);
      std::vector<std::int32_t> want;
      if (blocks <= keeps.topk) {
        want.resize(static_cast<std::size_t>(blocks));
        std::iota(want.begin(), want.end(), 0);
      } else {
        const int between = keeps.topk - keeps.init - keeps.local;
        want.resize(static_cast<std::size_t>(keeps.topk));
        std::iota(want.begin(), want.end(), 0);
        kernels::top_k::keep_largest(
            test.numbers.data() + static_cast<std::int64_t>(list) * test.max_blocks + keeps.init,
            blocks - keeps.init - keeps.local, between, want.data() + keeps.init);
        for (int i = 0; i < between; ++i)
          want[static_cast<std::size_t>(keeps.init + i)] += keeps.init;
        std::iota(want.end() - keeps.local, want.end(),
                  static_cast<std::int32_t>(blocks) - keeps.local);
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(keeps.topk); ++i)
        ASSERT_EQ(test.blocks[list * static_cast<std::size_t>(keeps.topk) + i],
                  i < want.size() ? want[i] : -1)
            << "list " << list << ", entry " << i << " of " << keeps.topk;
      test.expect_pages(list, want);
    }
  }
}

TEST(BlockSparse, ReadsAListAsASet) {
  Lists test(7, 0, 0, {0, 3, 21, 33});
  const std::vector<std::int32_t> given{5, -1, 0, 5, 8, 100, 2};
  for (std::size_t list = 0; list < test.kept.size(); ++list)
    std::copy(given.begin(), given.end(),
              test.blocks.begin() + static_cast<std::ptrdiff_t>(list * given.size()));
  ASSERT_TRUE(lists::launch_read(test.params(), nullptr).ok());
  for (std::size_t list = 0; list < test.kept.size(); ++list) {
    const std::int32_t seen = test.visible[list / Lists::kHeads];
    std::vector<std::int32_t> want;
    for (const std::int32_t block : {0, 2, 5, 8})
      if (block * Lists::kBlock < seen) want.push_back(block);
    test.expect_pages(list, want);
  }
}

/// A bf16 of small whole numbers.
std::uint16_t narrow(float x) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
}
float widen(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

TEST(BlockSparse, ABlockIsAsGoodAsItsBestKey) {
  struct Shape {
    int heads, dim, block;
    std::int64_t longest_query;
  };
  constexpr std::int32_t kPage = 16;
  for (const Shape shape :
       {Shape{4, 128, 128, 1}, Shape{3, 28, 7, 1}, Shape{4, 64, 16, 3}, Shape{2, 128, 40, 9}}) {
    const std::vector<std::int32_t> queries{1, 0, static_cast<std::int32_t>(shape.longest_query),
                                            1};
    const std::vector<std::int32_t> keys{1, 33, 500, 129};
    std::vector<std::int32_t> visible, entry_begin, pages;
    for (std::size_t i = 0; i < queries.size(); ++i) {
      for (std::int32_t row = 0; row < queries[i]; ++row) {
        visible.push_back(keys[i] - queries[i] + row + 1);
        entry_begin.push_back(static_cast<std::int32_t>(pages.size()));
      }
      for (std::int32_t p = 0; p < base::ceil_div(keys[i], kPage); ++p)
        pages.push_back(static_cast<std::int32_t>(97 - 2 * pages.size()));
    }
    const auto tokens = static_cast<std::int64_t>(visible.size());
    std::mt19937 random(3);
    const auto number = [&] {
      return narrow(static_cast<float>(static_cast<int>(random() % 9) - 4));
    };
    std::vector<std::uint16_t> q(static_cast<std::size_t>(tokens * shape.heads * shape.dim));
    std::vector<std::uint16_t> cache(static_cast<std::size_t>(100 * kPage * shape.dim));
    for (auto& x : q) x = number();
    for (auto& x : cache) x = random() % 701 == 0 ? std::uint16_t{0x7fc0} : number();

    constexpr std::int64_t kStride = 80;
    std::vector<float> out(static_cast<std::size_t>(tokens * shape.heads * kStride), 77.0f);
    const scores::Instance kernel =
        scores::instance_of(DType::bf16, shape.heads, shape.dim, shape.longest_query);
    constexpr std::int32_t kBlocks = 5;
    const backends::shared::cuda::ScoreRules rules{.topk = 20,
                                                   .rows = tokens,
                                                   .tokens_per_group = kernel.columns / shape.heads,
                                                   .blocks = kBlocks,
                                                   .keys_of_tile = shape.block};
    backends::shared::cuda::ScoreList work;
    backends::shared::cuda::list_scores(visible, entry_begin, rules, work);
    const scores::Params params{.q = q.data(),
                                .q_token_stride = std::int64_t{shape.heads} * shape.dim,
                                .q_head_stride = shape.dim,
                                .keys = cache.data(),
                                .page_stride = std::int64_t{kPage} * shape.dim,
                                .token_stride = shape.dim,
                                .page = base::FastDivisor(kPage),
                                .kv_indices = pages.data(),
                                .visible = visible.data(),
                                .scores = out.data(),
                                .stride = kStride,
                                .num_heads = shape.heads,
                                .head_dim = shape.dim,
                                .block_size = shape.block,
                                .groups = work.groups.data(),
                                .shares = work.shares.data()};
    ASSERT_TRUE(scores::launch(kernel, params, kBlocks, nullptr).ok());
    for (std::int64_t token = 0; token < tokens; ++token) {
      const std::int32_t seen = visible[static_cast<std::size_t>(token)];
      for (int head = 0; seen > rules.topk && head < shape.heads; ++head)
        for (std::int32_t block = 0; block * shape.block < seen; ++block) {
          float want = -kInfinity;
          for (std::int32_t key = block * shape.block;
               key < std::min(seen, (block + 1) * shape.block); ++key) {
            const std::int32_t page = pages[static_cast<std::size_t>(
                entry_begin[static_cast<std::size_t>(token)] + key / kPage)];
            float sum = 0.0f;
            for (int d = 0; d < shape.dim; ++d)
              sum +=
                  widen(q[static_cast<std::size_t>((token * shape.heads + head) * shape.dim + d)]) *
                  widen(cache[static_cast<std::size_t>((page * kPage + key % kPage) * shape.dim +
                                                       d)]);
            want = std::fmax(want, sum);
          }
          ASSERT_EQ(out[static_cast<std::size_t>((token * shape.heads + head) * kStride + block)],
                    want)
              << "token " << token << ", head " << head << ", block " << block;
        }
    }
  }
}

}  // namespace
}  // namespace attune
