// What the oracle's append_kv writes, in every format of a cache.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "backends/reference_problem.hpp"

namespace attune::backends::reference {
namespace {

using test::poison;

TEST(Reference, AppendQuantisesAndSaturates) {
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8}) {
    const AttentionSpec spec{.num_qo_heads = 1,
                             .num_kv_heads = 1,
                             .head_dim_qk = 4,
                             .head_dim_vo = 2,
                             .sm_scale = 1.0f,
                             .kv_scales = true,
                             .q_dtype = DType::f32,
                             .o_dtype = DType::f32,
                             .kv_dtype = dtype};
    auto backend = make({.spec = spec, .page_size = 2, .kv_layout = KvLayout::hnd});
    ASSERT_TRUE(backend.ok());
    std::vector<char> k_pool = poison(3 * 2 * 4 * 8);
    std::vector<char> v_pool = poison(3 * 2 * 2 * 8);
    const std::vector<char> before = k_pool;
    std::vector<float> k{1.5f, -0.25f, 3e5f, -3e5f, 9, 9, 9, 9};
    std::vector<float> v{2.0f, -1.0f, 9, 9};
    const std::vector<std::int64_t> slots{5, -1};
    const LayerCall call{.k = TensorView::dense(k.data(), DType::f32, {2, 1, 4}),
                         .v = TensorView::dense(v.data(), DType::f32, {2, 1, 2}),
                         .slot_mapping = slots,
                         .k_cache = TensorView::dense(k_pool.data(), dtype, {3, 1, 2, 4}),
                         .v_cache = TensorView::dense(v_pool.data(), dtype, {3, 1, 2, 2}),
                         .k_scale = 0.25f,
                         .v_scale = 0.5f};
    ASSERT_TRUE((*backend)->append_kv(call, {}).ok());
    const auto stored = [&](int d) { return tensor::load_element(k_pool.data(), dtype, 20 + d); };
    EXPECT_EQ(stored(0), 6.0) << name(dtype);
    EXPECT_EQ(stored(1), -1.0);
    if (dtype == DType::fp8_e4m3) {
      EXPECT_EQ(stored(2), 448.0);
    }
    if (dtype == DType::fp8_e5m2) {
      EXPECT_EQ(stored(3), -57344.0);
    }
    if (dtype == DType::i8) {
      EXPECT_EQ(stored(3), -127.0);
    }
    EXPECT_EQ(tensor::load_element(v_pool.data(), dtype, 10), 4.0);
    const auto written = 20 * size_of(dtype);
    EXPECT_EQ(std::memcmp(k_pool.data(), before.data(), written), 0) << "other slots change";
  }
}

TEST(Reference, TheFp8LatentRowIsReadAsItIsWritten) {
  const AttentionSpec spec{.variant = Variant::mla,
                           .num_qo_heads = 1,
                           .num_kv_heads = 1,
                           .head_dim_qk = 576,
                           .head_dim_vo = 512,
                           .kv_lora_rank = 512,
                           .qk_rope_head_dim = 64,
                           .sm_scale = 1.0f,
                           .q_dtype = DType::f32,
                           .o_dtype = DType::f32,
                           .kv_dtype = DType::fp8_e4m3};
  auto backend = make({.spec = spec, .page_size = 1, .kv_layout = KvLayout::mla_latent_fp8});
  ASSERT_TRUE(backend.ok()) << backend.status().text();
  std::vector<char> pool = poison(2 * 656);
  std::vector<float> k(576);
  for (std::size_t d = 0; d < 576; ++d) k[d] = static_cast<float>(d % 16) * (d < 256 ? 100 : 0.5f);
  const std::vector<std::int64_t> slots{1};
  LayerCall call{.k = TensorView::dense(k.data(), DType::f32, {1, 1, 576}),
                 .slot_mapping = slots,
                 .k_cache = TensorView::dense(pool.data(), DType::u8, {2, 1, 656})};
  ASSERT_TRUE((*backend)->append_kv(call, {}).ok());

  // One key: the output is its value, which is the latent part.
  std::vector<float> q(576, 0.0f), o(512);
  const std::vector<std::int32_t> ramp{0, 1}, page{1}, last{1};
  const BatchView batch{.form = BatchForm::decode,
                        .qo_indptr = ramp,
                        .kv_indptr = ramp,
                        .kv_indices = page,
                        .kv_last_page_len = last};
  call.q = TensorView::dense(q.data(), DType::f32, {1, 1, 576});
  call.o = TensorView::dense(o.data(), DType::f32, {1, 1, 512});
  alignas(256) char memory[4096 * 4];
  auto plan = (*backend)->plan(batch, {.device = memory, .device_bytes = sizeof(memory)}, {});
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE((*backend)->run(**plan, call, {}).ok());
  for (std::size_t d = 0; d < 512; ++d) EXPECT_NEAR(o[d], k[d], std::fabs(k[d]) / 16) << d;
}

}  // namespace
}  // namespace attune::backends::reference
