// Which specs of block-sparse attention make sense, and that its blocks count from position 0.
#include <gtest/gtest.h>

#include <vector>

#include <attune/spec.hpp>
#include <attune/validate.hpp>

namespace attune::attention {
namespace {

AttentionSpec spec() {
  return {.variant = Variant::minimax_sparse,
          .num_qo_heads = 4,
          .num_kv_heads = 2,
          .head_dim_qk = 16,
          .head_dim_vo = 16,
          .sm_scale = 0.25f,
          .index_num_heads = 2,
          .index_head_dim = 8,
          .index_topk = 3,
          .index_block_size = 4,
          .index_init_blocks = 1,
          .index_local_blocks = 2};
}

void expect_refused(void (*change)(AttentionSpec&), StatusCode code, std::string_view text) {
  AttentionSpec s = spec();
  change(s);
  const Status refused = validate_spec(s);
  EXPECT_EQ(refused.code(), code) << text;
  EXPECT_NE(refused.text().find(text), std::string::npos) << refused.text();
}

TEST(BlockSparse, SpecsThatMakeNoSenseAreRefused) {
  EXPECT_TRUE(validate_spec(spec()).ok()) << validate_spec(spec()).text();
  EXPECT_EQ(spec().index_lists(), 2);
  constexpr StatusCode kWrong = StatusCode::invalid_argument;
  expect_refused([](AttentionSpec& s) { s.index_num_heads = 4; }, kWrong,
                 "an index head for each KV head, have 4 and 2");
  expect_refused([](AttentionSpec& s) { s.index_block_size = 0; }, kWrong, "index_block_size 0");
  expect_refused([](AttentionSpec& s) { s.index_local_blocks = -1; }, kWrong,
                 "index_local_blocks -1");
  expect_refused([](AttentionSpec& s) { s.index_topk = 2; }, kWrong, "1 first and 2 last ones");
  expect_refused([](AttentionSpec& s) { s.variant = Variant::gqa; }, kWrong,
                 "belong to minimax_sparse, not to gqa");
  expect_refused([](AttentionSpec& s) { s.window_left = 7; }, StatusCode::unsupported,
                 "minimax_sparse is defined without windows");
}

TEST(BlockSparse, AllKeysFromTheFirstOnAreWanted) {
  const std::vector<std::int32_t> qo_indptr{0, 1};
  const std::vector<std::int32_t> kv_indptr{0, 9};
  std::vector<std::int64_t> kv_offset{0};
  const BatchView batch{.form = BatchForm::extend,
                        .source = KvSource::ragged,
                        .qo_indptr = qo_indptr,
                        .kv_indptr = kv_indptr,
                        .kv_offset = kv_offset};
  EXPECT_TRUE(validate_batch(batch, spec(), 1).ok());
  kv_offset[0] = 4;
  const auto refused = validate_batch(batch, spec(), 1);
  EXPECT_EQ(refused.status().code(), StatusCode::unsupported);
  EXPECT_NE(refused.status().text().find("minimax_sparse wants all keys"), std::string::npos);
}

}  // namespace
}  // namespace attune::attention
