#include <attune/draft_tree.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attention/mask.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;
using Parents = std::vector<std::int32_t>;

AttentionSpec plain() {
  return {.num_qo_heads = 2, .num_kv_heads = 1, .head_dim_qk = 8, .head_dim_vo = 8};
}

/// A step of one request.
Status assign(TreeMask& mask, const DraftTree& tree, const AttentionSpec& spec) {
  return mask.assign(std::vector<DraftTree>{tree}, spec);
}

std::string row(const TreeMask& mask, std::size_t request, std::int64_t r, std::int64_t columns) {
  std::string text;
  for (std::int64_t c = 0; c < columns; ++c) {
    const std::int64_t bit = r * columns + c;
    const std::size_t byte = static_cast<std::size_t>(mask.indptr()[request] + bit / 8);
    text += (mask.bits()[byte] >> (bit % 8) & 1) != 0 ? '1' : '.';
  }
  return text;
}

TEST(DraftTree, ATokenSeesTheContextItsAncestorsAndItself) {
  const Parents parents{-1, 0, 1, 0, 3};
  const DraftTree tree{.parents = parents, .context_len = 3};
  TreeMask mask;
  ASSERT_TRUE(assign(mask, tree, plain()).ok());
  EXPECT_EQ(row(mask, 0, 0, 8), "1111....");
  EXPECT_EQ(row(mask, 0, 1, 8), "11111...");
  EXPECT_EQ(row(mask, 0, 2, 8), "111111..");
  EXPECT_EQ(row(mask, 0, 3, 8), "1111..1.");
  EXPECT_EQ(row(mask, 0, 4, 8), "1111..11");
  EXPECT_THAT(mask.positions(), ::testing::ElementsAre(3, 4, 5, 4, 5));
  EXPECT_THAT(mask.indptr(), ::testing::ElementsAre(0, 5));
  EXPECT_FALSE(mask.all_chains());
}

TEST(DraftTree, RequestsStandOnTheirOwnBytes) {
  const Parents chain{-1, 0, 1};
  const Parents single{-1};
  const Parents bush{-1, 0, 0, 0};
  const Parents none{};
  const std::vector<DraftTree> trees{{.parents = chain, .context_len = 10},
                                     {.parents = single, .context_len = 0},
                                     {.parents = none, .context_len = 7},
                                     {.parents = bush, .context_len = 1}};
  TreeMask mask;
  ASSERT_TRUE(mask.assign(trees, plain()).ok());
  EXPECT_THAT(mask.indptr(), ::testing::ElementsAre(0, 5, 6, 6, 9));
  EXPECT_EQ(row(mask, 0, 0, 13), "11111111111..");
  EXPECT_EQ(row(mask, 0, 2, 13), "1111111111111");
  EXPECT_EQ(row(mask, 1, 0, 1), "1");
  EXPECT_EQ(row(mask, 3, 0, 5), "11...");
  EXPECT_EQ(row(mask, 3, 2, 5), "11.1.");
  EXPECT_THAT(mask.positions(), ::testing::ElementsAre(10, 11, 12, 0, 1, 2, 2, 2));
  ASSERT_TRUE(mask.assign(std::span(trees).first(3), plain()).ok());
  EXPECT_TRUE(mask.all_chains()) << "and memory of the step before is forgotten";
  EXPECT_EQ(mask.bits().size(), 6u);
}

TEST(DraftTree, WindowsCountPositionsNotSlots) {
  // Two branches of two tokens: the second branch stands four slots behind the root, and two
  // positions.
  const Parents parents{-1, 0, 1, 0, 3};
  AttentionSpec spec = plain();
  spec.window_left = 2;
  TreeMask mask;
  ASSERT_TRUE(assign(mask, DraftTree{.parents = parents, .context_len = 4}, spec).ok());
  EXPECT_EQ(row(mask, 0, 0, 9), "..111....");
  EXPECT_EQ(row(mask, 0, 2, 9), "....111..");
  EXPECT_EQ(row(mask, 0, 3, 9), "...11..1.");
  EXPECT_EQ(row(mask, 0, 4, 9), "....1..11");
  // A page table that begins later has fewer columns.
  ASSERT_TRUE(
      assign(mask, DraftTree{.parents = parents, .context_len = 4, .kv_offset = 2}, spec).ok());
  EXPECT_EQ(row(mask, 0, 3, 7), ".11..1.");
  spec.window_left = -1;
  spec.attention_chunk = 3;
  ASSERT_TRUE(assign(mask, DraftTree{.parents = parents, .context_len = 4}, spec).ok());
  EXPECT_EQ(row(mask, 0, 1, 9), "...111...");
  EXPECT_EQ(row(mask, 0, 4, 9), "........1") << "position 6 begins a chunk";
}

TEST(DraftTree, AChainSeesWhatTheCausalRuleSays) {
  const Parents chain{-1, 0, 1, 2, 3, 4, 5};
  for (const std::int64_t window : {-1, 0, 3, 20}) {
    AttentionSpec spec = plain();
    spec.window_left = window;
    TreeMask mask;
    ASSERT_TRUE(assign(mask, DraftTree{.parents = chain, .context_len = 13}, spec).ok());
    for (std::int64_t r = 0; r < 7; ++r) {
      std::string want;
      for (std::int64_t c = 0; c < 20; ++c)
        want += attention::visible({.causal = true, .window_left = window}, 13 + r, c) ? '1' : '.';
      EXPECT_EQ(row(mask, 0, r, 20), want) << window << " " << r;
    }
  }
}

TEST(DraftTree, MalformedTreesAreRefused) {
  const auto text = [](const Parents& parents) {
    const Status s = validate_tree(parents);
    EXPECT_EQ(s.code(), StatusCode::invalid_argument);
    return s.text();
  };
  EXPECT_TRUE(validate_tree({}).ok());
  EXPECT_TRUE(validate_tree(Parents{-1}).ok());
  EXPECT_THAT(text({0}), HasSubstr("root"));
  EXPECT_THAT(text({-1, -1}), HasSubstr("second root"));
  EXPECT_THAT(text({-1, 1}), HasSubstr("parents[1] = 1"));
  EXPECT_THAT(text({-1, 2, 1}), HasSubstr("cycle"));
  EXPECT_THAT(text({-1, 2, 0}), HasSubstr("before its children"));
  EXPECT_THAT(text({-1, 5}), HasSubstr("no token"));
  EXPECT_THAT(text({-1, -2}), HasSubstr("no token"));
  Parents wide(kMaxTreeTokens + 1, 0);
  wide[0] = -1;
  EXPECT_THAT(text(wide), HasSubstr("too wide"));

  TreeMask mask;
  const Parents good{-1, 0, 0};
  const Parents bad{-1, 2, 1};
  ASSERT_TRUE(assign(mask, DraftTree{.parents = good, .context_len = 5}, plain()).ok());
  const std::vector<DraftTree> second_bad{{.parents = good}, {.parents = bad}};
  EXPECT_THAT(mask.assign(second_bad, plain()).text(), HasSubstr("request 1"));
  EXPECT_FALSE(assign(mask, DraftTree{.parents = good, .context_len = -1}, plain()).ok());
  EXPECT_FALSE(
      assign(mask, DraftTree{.parents = good, .context_len = 1, .kv_offset = 2}, plain()).ok());
  EXPECT_EQ(mask.positions().size(), 3u) << "refused input changes nothing";
}

TEST(DraftTree, SpecsThatCountPositionsAreRefused) {
  AttentionSpec windowed = plain();
  windowed.window_left = 7;
  windowed.sinks = true;
  const auto tree = tree_spec(windowed);
  ASSERT_TRUE(tree.ok());
  EXPECT_TRUE(tree->custom_mask);
  EXPECT_TRUE(tree->sinks);
  EXPECT_EQ(tree->window_left, -1);
  AttentionSpec alibi = plain();
  alibi.alibi = true;
  AttentionSpec xai = plain();
  xai.xai_temperature_len = 8;
  AttentionSpec linear = plain();
  linear.variant = Variant::gdn;
  for (const AttentionSpec& spec : {alibi, xai, linear}) {
    EXPECT_EQ(tree_spec(spec).status().code(), StatusCode::unsupported);
    EXPECT_FALSE(tree_spec(spec).status().refusals().empty());
  }
}

TEST(DraftTree, GivenMasksArePackedAsTheyAre) {
  const std::vector<std::uint8_t> a{1, 0, 1, 1, 1, 0, 0, 0, 1, 255, 0, 1};
  const std::vector<std::uint8_t> b{0, 1};
  TreeMask mask;
  ASSERT_TRUE(mask.assign(std::vector<GivenMask>{{a, 3, 4}, {b, 1, 2}}).ok());
  EXPECT_EQ(row(mask, 0, 0, 4), "1.11");
  EXPECT_EQ(row(mask, 0, 2, 4), "11.1");
  EXPECT_EQ(row(mask, 1, 0, 2), ".1");
  EXPECT_THAT(mask.indptr(), ::testing::ElementsAre(0, 2, 3));
  EXPECT_FALSE(mask.assign(std::vector<GivenMask>{{a, 3, 3}}).ok());
  EXPECT_FALSE(mask.assign(std::vector<GivenMask>{{a, -1, -12}}).ok());
}

TEST(DraftTree, ThePathFollowsWhatTheTargetChose) {
  const Parents parents{-1, 0, 0, 1, 2, 2, 4};
  const Parents tokens{5, 10, 11, 12, 13, 14, 15};
  const auto path = [&](const Parents& chosen) { return *accepted_path(parents, tokens, chosen); };
  EXPECT_EQ(path({9, 0, 0, 0, 0, 0, 0}), (Parents{0}));
  EXPECT_EQ(path({11, 0, 14, 0, 0, 3, 0}), (Parents{0, 2, 5}));
  EXPECT_EQ(path({11, 0, 13, 0, 15, 0, 7}), (Parents{0, 2, 4, 6}));
  EXPECT_EQ(path({10, 13, 0, 0, 0, 0, 0}), (Parents{0, 1})) << "13 hangs from another token";
  EXPECT_FALSE(accepted_path(parents, tokens, Parents{1}).ok());
  EXPECT_TRUE(accepted_path({}, {}, {})->empty());
}

}  // namespace
}  // namespace attune
