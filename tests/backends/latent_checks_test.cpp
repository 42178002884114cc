#include "backends/shared/latent_checks.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace attune::backends::shared {
namespace {

BackendContext good() {
  BackendContext context;
  AttentionSpec& spec = context.spec;
  spec.variant = Variant::mla;
  spec.num_qo_heads = 128;
  spec.num_kv_heads = 1;
  spec.head_dim_qk = 576;
  spec.head_dim_vo = spec.kv_lora_rank = 512;
  spec.qk_rope_head_dim = 64;
  spec.sm_scale = 0.1f;
  context.device.kind = DeviceKind::cuda;
  context.page_size = 64;
  context.kv_layout = KvLayout::mla_latent;
  return context;
}

constexpr LatentWants kWants{.backend = "flashmla", .page_size = 64, .otherwise = ""};

TEST(LatentChecks, AcceptDeepSeeksLatents) {
  EXPECT_TRUE(check_latent_context(good(), kWants).ok());
  BackendContext f16 = good();
  f16.spec.q_dtype = f16.spec.o_dtype = f16.spec.kv_dtype = DType::f16;
  EXPECT_TRUE(check_latent_context(f16, kWants).ok());
}

TEST(LatentChecks, AcceptPackedLatentsWhereTheyAreRead) {
  constexpr LatentWants kPacked{.backend = "flashmla", .page_size = 64, .packed = true};
  BackendContext packed = good();
  packed.kv_layout = KvLayout::mla_latent_fp8;
  packed.spec.kv_dtype = DType::fp8_e4m3;
  EXPECT_TRUE(check_latent_context(packed, kPacked).ok());
  packed.spec.q_dtype = DType::f16;
  const Status s = check_latent_context(packed, kPacked);
  EXPECT_NE(s.text().find("q and o in bf16 over latents in fp8_e4m3"), std::string::npos)
      << s.text();
}

TEST(LatentChecks, AcceptQueriesInE4m3WhereTheyAreRead) {
  constexpr LatentWants kE4m3{.backend = "flashmla", .page_size = 64, .packed = true, .e4m3 = true};
  BackendContext e4m3 = good();
  e4m3.spec.q_dtype = e4m3.spec.kv_dtype = DType::fp8_e4m3;
  EXPECT_TRUE(check_latent_context(e4m3, kE4m3).ok());
  EXPECT_FALSE(check_latent_context(e4m3, kWants).ok());
  EXPECT_TRUE(check_latent_context(good(), kE4m3).ok());

  BackendContext wide_output = e4m3;
  wide_output.spec.o_dtype = DType::f32;
  BackendContext packed = e4m3;
  packed.kv_layout = KvLayout::mla_latent_fp8;
  BackendContext bf16_queries = e4m3;
  bf16_queries.spec.q_dtype = DType::bf16;
  const std::vector<std::pair<BackendContext, std::string>> refused{
      {wide_output, "q and latents in fp8_e4m3 and o in bf16, have fp8_e4m3, fp32"},
      {packed, "q and o in bf16 over latents in fp8_e4m3, have fp8_e4m3"},
      {bf16_queries, "or q and latents in fp8_e4m3, have bf16"}};
  for (const auto& [context, words] : refused) {
    const Status s = check_latent_context(context, kE4m3);
    EXPECT_NE(s.text().find(words), std::string::npos) << s.text();
  }
}

TEST(LatentChecks, EachRefusalSaysWhatItFound) {
  const std::vector<std::pair<std::function<void(BackendContext&)>, std::string>> refused{
      {[](BackendContext& c) { c.page_size = 16; }, "pages of 64 tokens, have 16"},
      {[](BackendContext& c) { c.kv_layout = KvLayout::mla_latent_fp8; }, "mla_latent_fp8"},
      {[](BackendContext& c) { c.spec.kv_dtype = DType::fp8_e4m3; }, "fp8_e4m3"},
      {[](BackendContext& c) { c.spec.o_dtype = DType::f32; }, "fp32"},
      {[](BackendContext& c) {
         c.spec.head_dim_vo = c.spec.kv_lora_rank = 256;
         c.spec.head_dim_qk = 320;
       },
       "256 + 64"},
      {[](BackendContext& c) { c.spec.window_left = 7; }, "sliding windows"},
      {[](BackendContext& c) { c.spec.logits_soft_cap = 30; }, "soft caps"},
      {[](BackendContext& c) { c.spec.sinks = true; }, "sinks"},
      {[](BackendContext& c) { c.spec.custom_mask = true; }, "custom masks"},
      {[](BackendContext& c) { c.batch_invariant = true; }, "neighbours"},
      {[](BackendContext& c) { c.device.kind = DeviceKind::cpu; }, "not on cpu"},
      {[](BackendContext& c) { c.spec.variant = Variant::gqa; }, "not gqa"},
      {[](BackendContext& c) { c.spec.num_kv_heads = 2; }, "one KV head"},
  };
  for (const auto& [change, words] : refused) {
    BackendContext context = good();
    change(context);
    const Status s = check_latent_context(context, kWants);
    ASSERT_FALSE(s.ok()) << words;
    EXPECT_NE(s.text().find(words), std::string::npos) << s.text();
  }
}

}  // namespace
}  // namespace attune::backends::shared
