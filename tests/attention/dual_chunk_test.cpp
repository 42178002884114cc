#include "attention/dual_chunk.hpp"

#include <gtest/gtest.h>

#include <vector>

#include <attune/spec.hpp>
#include <attune/validate.hpp>

namespace attune::attention {
namespace {

std::vector<std::int64_t> ranges(std::int64_t chunk_len, std::int64_t p) {
  std::vector<std::int64_t> ends;
  for (int query = 0; query < kDualChunkQueries; ++query) {
    const KeyRange r = dual_chunk_range(query, chunk_len, p);
    ends.push_back(r.begin);
    ends.push_back(r.end);
  }
  return ends;
}

TEST(DualChunk, RangesOfChunksOfSix) {
  EXPECT_EQ(ranges(6, 5), (std::vector<std::int64_t>{0, 6, 0, 0, 0, 0}));
  EXPECT_EQ(ranges(6, 6), (std::vector<std::int64_t>{6, 7, 0, 6, 0, 0}));
  EXPECT_EQ(ranges(6, 13), (std::vector<std::int64_t>{12, 14, 6, 12, 0, 6}));
  EXPECT_EQ(ranges(6, 20), (std::vector<std::int64_t>{18, 21, 12, 18, 0, 12}));
  EXPECT_EQ(ranges(6, -1), (std::vector<std::int64_t>{0, 0, 0, 0, 0, 0})) << "more rows than keys";
}

TEST(DualChunk, RangesPartitionWhatAQuerySees) {
  for (const std::int64_t chunk_len : {1, 2, 7, 64})
    for (std::int64_t p = 0; p < 300; ++p) {
      const KeyRange own = dual_chunk_range(0, chunk_len, p);
      const KeyRange before = dual_chunk_range(1, chunk_len, p);
      const KeyRange earlier = dual_chunk_range(2, chunk_len, p);
      EXPECT_EQ(earlier.begin, 0);
      EXPECT_EQ(earlier.end, before.begin);
      EXPECT_EQ(before.end, own.begin);
      EXPECT_EQ(own.end, p + 1);
      EXPECT_LE(p - own.begin, chunk_len - 1);
    }
}

AttentionSpec spec() {
  return {.variant = Variant::dual_chunk,
          .num_qo_heads = 4,
          .num_kv_heads = 2,
          .head_dim_qk = 16,
          .head_dim_vo = 16,
          .sm_scale = 0.25f,
          .dual_chunk_len = 6};
}

TEST(DualChunk, SpecsThatMakeNoSenseAreRefused) {
  EXPECT_TRUE(validate_spec(spec()).ok()) << validate_spec(spec()).text();
  EXPECT_EQ(spec().q_columns(), 48);
  AttentionSpec s = spec();
  s.dual_chunk_len = 0;
  EXPECT_EQ(validate_spec(s).code(), StatusCode::invalid_argument);
  s = spec();
  s.variant = Variant::gqa;
  EXPECT_EQ(validate_spec(s).code(), StatusCode::invalid_argument);
  s = spec();
  s.window_left = 7;
  EXPECT_EQ(validate_spec(s).code(), StatusCode::unsupported);
  EXPECT_NE(validate_spec(s).text().find("dual_chunk is defined without windows"),
            std::string::npos);
}

TEST(DualChunk, AllKeysFromTheFirstOnAreWanted) {
  const std::vector<std::int32_t> qo_indptr{0, 1};
  const std::vector<std::int32_t> kv_indptr{0, 9};
  std::vector<std::int64_t> kv_offset{0};
  const BatchView batch{.form = BatchForm::extend,
                        .source = KvSource::ragged,
                        .qo_indptr = qo_indptr,
                        .kv_indptr = kv_indptr,
                        .kv_offset = kv_offset};
  EXPECT_TRUE(validate_batch(batch, spec(), 1).ok());
  kv_offset[0] = 6;
  const auto refused = validate_batch(batch, spec(), 1);
  EXPECT_EQ(refused.status().code(), StatusCode::unsupported);
  EXPECT_NE(refused.status().text().find("kv_offset[0] = 6"), std::string::npos);
}

}  // namespace
}  // namespace attune::attention
