// Hand-worked lists of blocks, on reference and cpu: one KV head, index keys of one number, blocks of
// two keys, values that say which keys were attended to.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <attune/backend.hpp>
#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "backends/cpu/descriptor.hpp"
#include "backends/reference/descriptor.hpp"

namespace attune::backends {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Keeps {
  int topk;
  int init;
  int local;
};

struct Answer {
  std::vector<std::int32_t> list;
  float o = 0.0f;  ///< all keys weigh alike: the mean of the values of those kept
};

/// The last query of `index_keys.size()` tokens. Value j is 2^j.
Answer solve(BackendFactory make, const Keeps& keeps, std::vector<float> index_keys,
             std::vector<std::int32_t> given = {}) {
  const auto n = static_cast<std::int32_t>(index_keys.size());
  const AttentionSpec spec{.variant = Variant::minimax_sparse,
                           .num_qo_heads = 1,
                           .num_kv_heads = 1,
                           .head_dim_qk = 1,
                           .head_dim_vo = 1,
                           .sm_scale = 1.0f,
                           .q_dtype = DType::f32,
                           .o_dtype = DType::f32,
                           .kv_dtype = DType::f32,
                           .index_num_heads = 1,
                           .index_head_dim = 1,
                           .index_topk = keeps.topk,
                           .index_dtype = DType::f32,
                           .index_block_size = 2,
                           .index_init_blocks = keeps.init,
                           .index_local_blocks = keeps.local};
  auto backend = make({.spec = spec, .device = cpu_device()});
  EXPECT_TRUE(backend.ok()) << backend.status().text();
  const std::vector<std::int32_t> qo_indptr{0, 1};
  const std::vector<std::int32_t> kv_indptr{0, n};
  const BatchView batch{.form = BatchForm::extend,
                        .source = KvSource::ragged,
                        .qo_indptr = qo_indptr,
                        .kv_indptr = kv_indptr};
  std::vector<float> q{0.0f};
  std::vector<float> index_q{1.0f};
  std::vector<float> k(index_keys.size(), 0.0f);
  std::vector<float> v(index_keys.size());
  for (std::size_t j = 0; j < v.size(); ++j) v[j] = std::ldexp(1.0f, static_cast<int>(j));
  Answer answer{.list = std::move(given)};
  const bool chooses = answer.list.empty();
  answer.list.resize(static_cast<std::size_t>(keeps.topk));
  SparseCall sparse{.topk_indices =
                        TensorView::dense(answer.list.data(), DType::i32, {1, 1, keeps.topk})};
  if (chooses) {
    sparse.index_q = TensorView::dense(index_q.data(), DType::f32, {1, 1, 1});
    sparse.index_k = TensorView::dense(index_keys.data(), DType::f32, {n, 1});
  }
  const LayerCall call{.q = TensorView::dense(q.data(), DType::f32, {1, 1, 1}),
                       .o = TensorView::dense(&answer.o, DType::f32, {1, 1, 1}),
                       .k = TensorView::dense(k.data(), DType::f32, {n, 1, 1}),
                       .v = TensorView::dense(v.data(), DType::f32, {n, 1, 1}),
                       .sparse = &sparse};
  const WorkspaceSize size = (*backend)->workspace_size(attention::bounds_of(batch));
  std::vector<std::byte> memory(size.device_bytes + 256);
  void* at = memory.data();
  std::size_t room = memory.size();
  auto plan = (*backend)->plan(
      batch,
      {.device = std::align(256, size.device_bytes, at, room), .device_bytes = size.device_bytes},
      {});
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  const Status ran = (*backend)->run(**plan, call, {});
  EXPECT_TRUE(ran.ok()) << ran.text();
  return answer;
}

class BlockSparse : public testing::TestWithParam<BackendFactory> {};

using List = std::vector<std::int32_t>;

TEST_P(BlockSparse, ABlockIsAsGoodAsItsBestKey) {
  const Answer a = solve(GetParam(), {2, 0, 1}, {-9, 5, 2, 2, 3, 3, 0});
  EXPECT_EQ(a.list, (List{0, 3}));
  EXPECT_FLOAT_EQ(a.o, (1 + 2 + 64) / 3.0f) << "blocks 0 and 3, whose second key is not there yet";
}

TEST_P(BlockSparse, OfEqualBlocksTheLaterIsKept) {
  EXPECT_EQ(solve(GetParam(), {2, 0, 1}, {7, 0, 7, 1, 0, 7, 0, 0}).list, (List{2, 3}));
  EXPECT_EQ(solve(GetParam(), {2, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}).list, (List{2, 3}));
}

TEST_P(BlockSparse, FirstAndLastBlocksAreKeptWhateverOthersScore) {
  const float huge = 1e38f;
  EXPECT_EQ(solve(GetParam(), {2, 1, 1}, {-1, -1, huge, huge, kInfinity, 0, -1}).list,
            (List{0, 3}));
  EXPECT_EQ(solve(GetParam(), {3, 1, 1}, {-1, -1, 3, 3, kInfinity, 0, -1}).list, (List{0, 2, 3}));
}

TEST_P(BlockSparse, NaNIsTheSmallestScore) {
  EXPECT_EQ(solve(GetParam(), {2, 0, 1}, {kNan, kNan, -kInfinity, -5, kNan, 2, 0}).list,
            (List{2, 3}));
  EXPECT_EQ(solve(GetParam(), {2, 0, 1}, {kNan, kNan, -5, -5, kNan, -7, 0}).list, (List{1, 3}));
}

TEST_P(BlockSparse, AsManyBlocksAsTheListHoldsAreKeptUnscored) {
  const Answer a = solve(GetParam(), {4, 1, 1}, {kNan, 1, kNan, 1, kNan});
  EXPECT_EQ(a.list, (List{0, 1, 2, -1}));
  EXPECT_FLOAT_EQ(a.o, 31 / 5.0f);
}

TEST_P(BlockSparse, AGivenListIsASetOfVisibleBlocks) {
  const std::vector<float> keys(7, 0.0f);
  EXPECT_FLOAT_EQ(solve(GetParam(), {4, 0, 0}, keys, {3, 0, 3, -1}).o, (64 + 1 + 2) / 3.0f);
  EXPECT_FLOAT_EQ(solve(GetParam(), {3, 0, 0}, keys, {4, 1, -7}).o, (4 + 8) / 2.0f);
  EXPECT_EQ(solve(GetParam(), {2, 0, 0}, keys, {4, -1}).o, 0.0f) << "no block: an empty row";
}

INSTANTIATE_TEST_SUITE_P(OnCpus, BlockSparse, testing::Values(&reference::make, &cpu::make),
                         [](const auto& test) {
                           return std::string(test.index == 0 ? "reference" : "cpu");
                         });

}  // namespace
}  // namespace attune::backends
