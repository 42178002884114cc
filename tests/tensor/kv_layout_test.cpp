#include "tensor/kv_layout.hpp"

#include <gtest/gtest.h>

namespace attune::tensor {
namespace {

TEST(KvLayout, PagesOfHeads) {
  const KvShape shape{.layout = KvLayout::hnd,
                      .dtype = DType::bf16,
                      .page_size = 16,
                      .num_kv_heads = 8,
                      .head_dim_qk = 192,
                      .head_dim_vo = 128};
  EXPECT_EQ(k_page_bytes(shape), 16 * 8 * 192 * 2);
  EXPECT_EQ(v_page_bytes(shape), 16 * 8 * 128 * 2);
  char byte = 0;
  const TensorView k = k_cache_view(&byte, shape, 3);
  EXPECT_EQ(k.rank, 4);
  EXPECT_EQ(k.shape[1], 8);
  EXPECT_EQ(k.shape[2], 16);
  EXPECT_EQ(k.stride[0], 16 * 8 * 192);
}

TEST(KvLayout, LatentValuesAreASliceOfTheKeys) {
  const KvShape shape{.layout = KvLayout::mla_latent,
                      .dtype = DType::bf16,
                      .page_size = 64,
                      .num_kv_heads = 1,
                      .head_dim_qk = 576,
                      .head_dim_vo = 512};
  EXPECT_EQ(k_page_bytes(shape), 64 * 1152);
  EXPECT_EQ(v_page_bytes(shape), 0);
  char byte = 0;
  const TensorView v = v_cache_view(&byte, shape, 2);
  EXPECT_EQ(v.shape[2], 512);
  EXPECT_EQ(v.stride[1], 576);
  EXPECT_EQ(v.stride[0], 64 * 576);
}

TEST(KvLayout, TheFp8LatentIs656Bytes) {
  EXPECT_EQ(k_page_bytes({.layout = KvLayout::mla_latent_fp8, .page_size = 64}), 64 * 656);
}

}  // namespace
}  // namespace attune::tensor
