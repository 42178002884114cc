// The portable form's kernels fit the cards with the least shared memory: 100 KiB a multiprocessor, 99 a block.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/mla_decode/sm80/launch.hpp"
#include "kernels/paged_decode/sm80/launch.hpp"
#include "kernels/ptx/code_form.hpp"
#include "kernels/ragged_prefill/sm80/launch.hpp"

namespace attune::kernels {
namespace {

constexpr int kSharedPerBlock = 99 * 1024;

struct Keys {
  DType dtype;
  int head_dim_qk;
  int head_dim_vo;
};

/// The head dims that descriptors of general kernels name, and some that only padded ones serve.
std::vector<Keys> all_keys() {
  std::vector<Keys> keys;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    keys.push_back({dtype, 192, 128});
    for (const int dim : {8, 64, 72, 80, 96, 128, 136, 192, 248, 256, 264, 512})
      keys.push_back({dtype, dim, dim});
  }
  for (const DType dtype : {DType::fp8_e4m3, DType::fp8_e5m2})
    for (const int dim : {64, 128, 256, 512}) keys.push_back({dtype, dim, dim});
  return keys;
}

TEST(SmallCard, EveryHeadDimHasKernelsThatFit) {
  const int shared_per_sm = ptx::kPortableForm.shared_per_sm;
  for (const Keys& k : all_keys()) {
    SCOPED_TRACE(testing::Message()
                 << name(k.dtype) << " " << k.head_dim_qk << "/" << k.head_dim_vo);
    for (const int group : {1, 16}) {
      const auto* decode =
          paged_decode::sm80::find(k.dtype, k.head_dim_qk, k.head_dim_vo, group, shared_per_sm);
      ASSERT_NE(decode, nullptr);
      EXPECT_GE(decode->stages(shared_per_sm), 2);
      EXPECT_GE(decode->warps(shared_per_sm), 2);  // two heads of 8-bit keys share a block
      EXPECT_LE(decode->shared_bytes(shared_per_sm), kSharedPerBlock);
    }
    const auto* prefill =
        ragged_prefill::sm80::find(k.dtype, k.head_dim_qk, k.head_dim_vo, kSharedPerBlock, false);
    ASSERT_NE(prefill, nullptr);
    EXPECT_LE(prefill->shared_bytes, kSharedPerBlock);
  }
  for (const int heads : {16, 128})
    for (const int dim : {64, 192, 576})
      EXPECT_LE(mla_decode::sm80::instance_of(DType::bf16, {.qk = dim, .vo = dim < 512 ? dim : 512},
                                              heads, kSharedPerBlock)
                    .shared_bytes,
                kSharedPerBlock);
}

TEST(SmallCard, HopperKeepsAllWarps) {
  const auto* decode =
      paged_decode::sm80::find(DType::bf16, 128, 128, 4, ptx::code_form(90).shared_per_sm);
  ASSERT_NE(decode, nullptr);
  EXPECT_EQ(decode->warps(ptx::code_form(90).shared_per_sm), 8);
  EXPECT_EQ(ptx::code_form(89).shared_per_sm, ptx::code_form(120).shared_per_sm);
  EXPECT_FALSE(ptx::code_form(120).overlap);
}

}  // namespace
}  // namespace attune::kernels
