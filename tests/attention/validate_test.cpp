#include <attune/validate.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace attune::attention {
namespace {

using ::testing::HasSubstr;

/// The batch of batch.hpp's example and everything a run over it needs.
struct Scene {
  std::vector<std::int32_t> qo_indptr{0, 3, 4};
  std::vector<std::int32_t> kv_indptr{0, 2, 5};
  std::vector<std::int32_t> kv_indices{7, 2, 9, 4, 1};
  std::vector<std::int32_t> kv_last_page_len{1, 1};
  std::vector<std::int64_t> kv_offset;
  std::vector<std::uint8_t> mask;
  std::vector<std::int64_t> mask_indptr;
  std::vector<PrefixGroup> groups;
  BatchForm form = BatchForm::extend;
  KvSource source = KvSource::paged;
  std::int32_t page_size = 4;
  AttentionSpec spec{.num_qo_heads = 4,
                     .num_kv_heads = 2,
                     .head_dim_qk = 8,
                     .head_dim_vo = 8,
                     .sm_scale = 0.5f,
                     .q_dtype = DType::f32,
                     .o_dtype = DType::f32,
                     .kv_dtype = DType::f32};
  std::vector<float> memory = std::vector<float>(10 * 4 * 2 * 8);
  LayerCall call{.q = TensorView::dense(memory.data(), DType::f32, {4, 4, 8}),
                 .o = TensorView::dense(memory.data(), DType::f32, {4, 4, 8}),
                 .k_cache = TensorView::dense(memory.data(), DType::f32, {10, 4, 2, 8}),
                 .v_cache = TensorView::dense(memory.data(), DType::f32, {10, 4, 2, 8})};

  [[nodiscard]] BatchView batch() const {
    return {.form = form,
            .source = source,
            .page_size = page_size,
            .qo_indptr = qo_indptr,
            .kv_indptr = kv_indptr,
            .kv_indices = kv_indices,
            .kv_last_page_len = kv_last_page_len,
            .kv_offset = kv_offset,
            .custom_mask = mask,
            .custom_mask_indptr = mask_indptr,
            .prefix_groups = groups};
  }
  [[nodiscard]] Status check() const {
    if (Status s = validate_spec(spec); !s.ok()) return s;
    const auto facts = validate_batch(batch(), spec, 4);
    if (!facts.ok()) return facts.status();
    return validate_run(call, *facts, spec, 4, KvLayout::nhd);
  }
};

TEST(Validate, TheExampleIsFine) {
  const Scene scene;
  EXPECT_TRUE(scene.check().ok()) << scene.check().text();
  const auto facts = validate_batch(scene.batch(), scene.spec, 4);
  EXPECT_EQ(facts->max_page_id, 9);
  EXPECT_EQ(facts->max_kv_len, 9);
  EXPECT_EQ(facts->max_qo_len, 3);
}

struct Hostile {
  const char* text;
  std::function<void(Scene&)> change;
};

TEST(Validate, EveryHostileInputIsNamed) {
  const float scale = 1.0f;
  const Hostile cases[] = {
      {"must divide", [](Scene& s) { s.spec.num_qo_heads = 5; }},
      {"must divide", [](Scene& s) { s.spec.num_kv_heads = 0; }},
      {"head dims", [](Scene& s) { s.spec.head_dim_qk = 0; }},
      {"sm_scale", [](Scene& s) { s.spec.sm_scale = 0.0f; }},
      {"sm_scale", [](Scene& s) { s.spec.sm_scale = std::nanf(""); }},
      {"logits_soft_cap", [](Scene& s) { s.spec.logits_soft_cap = -1.0f; }},
      {"windows", [](Scene& s) { s.spec.window_left = -2; }},
      {"window_right", [](Scene& s) { s.spec.window_right = 3; }},
      {"attention_chunk", [](Scene& s) { s.spec.attention_chunk = -1; }},
      {"log2(1)", [](Scene& s) { s.spec.xai_temperature_len = 1; }},
      {"not causal", [](Scene& s) { s.spec.kind = AttentionKind::cross; }},
      {"q and o", [](Scene& s) { s.spec.q_dtype = DType::i8; }},
      {"q of mla fp8_e4m3", [](Scene& s) { s.spec.q_dtype = s.spec.kv_dtype = DType::fp8_e4m3; }},
      {"stored as int64", [](Scene& s) { s.spec.kv_dtype = DType::i64; }},
      {"not dense", [](Scene& s) { s.spec.variant = Variant::gdn; }},
      {"absorbed mla", [](Scene& s) { s.spec.variant = Variant::mla; }},
      {"pages of 8", [](Scene& s) { s.page_size = 8; }},
      {"or neither", [](Scene& s) { s.qo_indptr.clear(); }},
      {"kv_indptr: want 3", [](Scene& s) { s.kv_indptr.pop_back(); }},
      {"qo_indptr[0]", [](Scene& s) { s.qo_indptr[0] = 1; }},
      {"qo_indptr must never fall",
       [](Scene& s) {
         s.qo_indptr = {0, 5, 4};
       }},
      {"kv_indptr must never fall",
       [](Scene& s) {
         s.kv_indptr = {0, -2, 5};
       }},
      {"kv_indices: want 5", [](Scene& s) { s.kv_indices.pop_back(); }},
      {"kv_indices: want 5", [](Scene& s) { s.kv_indices.push_back(0); }},
      {"negative", [](Scene& s) { s.kv_indices[2] = -1; }},
      {"page id 10 is beyond", [](Scene& s) { s.kv_indices[2] = 10; }},
      {"beyond the cache", [](Scene& s) { s.kv_indices[2] = INT32_MAX; }},
      {"kv_last_page_len: want 2", [](Scene& s) { s.kv_last_page_len.pop_back(); }},
      {"kv_last_page_len[1] = 0", [](Scene& s) { s.kv_last_page_len[1] = 0; }},
      {"kv_last_page_len[0] = 5", [](Scene& s) { s.kv_last_page_len[0] = 5; }},
      {"want 0 … 0",
       [](Scene& s) {
         s.kv_indptr = {0, 0, 5};
         s.kv_last_page_len = {1, 1};
       }},
      {"kv_offset: want 2", [](Scene& s) { s.kv_offset = {0}; }},
      {"not a position",
       [](Scene& s) {
         s.kv_offset = {0, -1};
       }},
      {"idle batch", [](Scene& s) { s.form = BatchForm::idle; }},
      {"decode batch", [](Scene& s) { s.form = BatchForm::decode; }},
      {"ragged", [](Scene& s) { s.source = KvSource::ragged; }},
      {"custom_mask = false",
       [](Scene& s) {
         s.mask = {1, 2};
       }},
      {"custom_mask_indptr: want 3", [](Scene& s) { s.spec.custom_mask = true; }},
      {"too short: want 2 bytes",
       [](Scene& s) {
         s.spec.custom_mask = true;
         s.mask_indptr = {0, 1, 3};
         s.mask = {1, 2, 3};
       }},
      {"the mask has 3",
       [](Scene& s) {
         s.spec.custom_mask = true;
         s.mask_indptr = {0, 2, 4};
         s.mask = {1, 2, 3};
       }},
      {"must never fall",
       [](Scene& s) {
         s.spec.custom_mask = true;
         s.mask_indptr = {9, 2, 4};
         s.mask = {1, 2, 3, 4};
       }},
      {"prefix_groups[0] covers",
       [](Scene& s) { s.groups = {{.first_request = 1, .num_requests = 2, .num_pages = 1}}; }},
      {"differ",
       [](Scene& s) { s.groups = {{.first_request = 0, .num_requests = 2, .num_pages = 1}}; }},
      {"shares 2 full pages",
       [](Scene& s) {
         s.kv_indices = {7, 2, 7, 2, 1};
         s.groups = {{.first_request = 0, .num_requests = 2, .num_pages = 2}};
       }},
      {"leave the group out",
       [](Scene& s) { s.groups = {{.first_request = 0, .num_requests = 2, .num_pages = 0}}; }},
      {"q: want shape", [](Scene& s) { s.call.q.shape[0] = 3; }},
      {"q: want shape", [](Scene& s) { s.call.q.rank = 2; }},
      {"q: rank", [](Scene& s) { s.call.q.rank = 77; }},
      {"q: want fp32, have bf16", [](Scene& s) { s.call.q.dtype = DType::bf16; }},
      {"q: the innermost stride", [](Scene& s) { s.call.q.stride[2] = 2; }},
      {"negative; copy", [](Scene& s) { s.call.q.stride[0] = -1; }},
      {"address space", [](Scene& s) { s.call.k_cache.stride[0] = INT64_MAX / 4; }},
      {"null pointer", [](Scene& s) { s.call.q.data = nullptr; }},
      {"not aligned",
       [](Scene& s) { s.call.q.data = reinterpret_cast<char*>(s.memory.data()) + 1; }},
      {"share an address", [](Scene& s) { s.call.o.stride[0] = 8; }},
      {"lse: want shape",
       [](Scene& s) {
         s.call.lse = TensorView::dense(s.memory.data(), DType::f32, {4, 3});
       }},
      {"k_cache: want shape", [](Scene& s) { s.call.k_cache.shape[2] = 3; }},
      {"v_cache: want shape", [](Scene& s) { s.call.v_cache = {}; }},
      {"v_cache has 9", [](Scene& s) { s.call.v_cache.shape[0] = 9; }},
      {"k_scale must be positive", [](Scene& s) { s.call.k_scale = 0.0f; }},
      {"need kv_scales", [](Scene& s) { s.call.v_scale = 2.0f; }},
      {"q_scale", [](Scene& s) { s.call.q_scale = std::nanf(""); }},
      {"brings k_scale_per_head", [&](Scene& s) { s.call.k_scale_per_head = &scale; }},
      {"asks for k_scale_per_head", [](Scene& s) { s.spec.per_head_scales = true; }},
      {"asks for sinks", [](Scene& s) { s.spec.sinks = true; }},
      {"brings sinks", [&](Scene& s) { s.call.sinks = &scale; }},
      {"asks for alibi", [](Scene& s) { s.spec.alibi = true; }},
  };
  for (const Hostile& hostile : cases) {
    Scene scene;
    hostile.change(scene);
    const Status status = scene.check();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << hostile.text;
    EXPECT_THAT(status.text(), HasSubstr(hostile.text));
  }
}

TEST(Validate, ALatentCacheOfAnotherWidthIsRefusedWithBoth) {
  Scene scene;
  scene.spec = {.variant = Variant::mla,
                .num_qo_heads = 4,
                .num_kv_heads = 1,
                .head_dim_qk = 576,
                .head_dim_vo = 512,
                .sm_scale = 0.1f,
                .q_dtype = DType::f32,
                .o_dtype = DType::f32,
                .kv_dtype = DType::f32};
  scene.spec.kv_lora_rank = 512;
  scene.spec.qk_rope_head_dim = 64;
  ASSERT_TRUE(validate_spec(scene.spec).ok()) << validate_spec(scene.spec).text();
  const auto facts = validate_batch(scene.batch(), scene.spec, 4);
  ASSERT_TRUE(facts.ok()) << facts.status().text();
  std::vector<float> memory(10 * 4 * 656);
  const auto run = [&](std::int64_t width, DType dtype, KvLayout layout) {
    scene.call = {.q = TensorView::dense(memory.data(), DType::f32, {4, 4, 576}),
                  .o = TensorView::dense(memory.data(), DType::f32, {4, 4, 512}),
                  .k_cache = TensorView::dense(memory.data(), dtype, {10, 4, width})};
    return validate_run(scene.call, *facts, scene.spec, 4, layout);
  };
  EXPECT_TRUE(run(576, DType::f32, KvLayout::mla_latent).ok())
      << run(576, DType::f32, KvLayout::mla_latent).text();
  for (const std::int64_t width : {512, 575, 640}) {
    const Status s = run(width, DType::f32, KvLayout::mla_latent);
    ASSERT_FALSE(s.ok()) << width;
    EXPECT_THAT(s.text(), HasSubstr("k_cache"));
    EXPECT_THAT(s.text(), HasSubstr("576"));
    EXPECT_THAT(s.text(), HasSubstr(std::to_string(width)));
  }
  const Status packed = run(640, DType::u8, KvLayout::mla_latent_fp8);
  ASSERT_FALSE(packed.ok());
  EXPECT_THAT(packed.text(), HasSubstr("656"));
  EXPECT_THAT(packed.text(), HasSubstr("640"));
  scene.spec.q_dtype = DType::fp8_e4m3;
  EXPECT_FALSE(validate_spec(scene.spec).ok()) << "over latents in fp32";
  scene.spec.kv_dtype = DType::fp8_e4m3;
  EXPECT_TRUE(validate_spec(scene.spec).ok()) << validate_spec(scene.spec).text();
}

TEST(Validate, MaskSizesDoNotWrap) {
  // 2^20 rows by 2^40 columns are a number; 2^31 rows are not, and must not wrap to a small one.
  Scene scene;
  scene.spec.custom_mask = true;
  scene.page_size = 1 << 30;
  std::vector<std::int32_t> pages(1 << 10);
  scene.qo_indptr = {0, 1 << 20};
  scene.kv_indptr = {0, static_cast<std::int32_t>(pages.size())};
  scene.kv_indices = pages;
  scene.kv_last_page_len = {1 << 30};
  scene.mask_indptr = {0, 1};
  scene.mask = {1};
  const auto facts = validate_batch(scene.batch(), scene.spec, 1 << 30);
  ASSERT_FALSE(facts.ok());
  EXPECT_THAT(facts.status().text(), HasSubstr("too short"));
  scene.qo_indptr = {0, INT32_MAX};
  EXPECT_THAT(validate_batch(scene.batch(), scene.spec, 1 << 30).status().text(),
              HasSubstr("too large"));
}

TEST(Validate, AnEmptyBatchIsFine) {
  const AttentionSpec spec = Scene().spec;
  EXPECT_TRUE(validate_batch({}, spec, 1).ok());
  const std::vector<std::int32_t> zeros{0};
  EXPECT_TRUE(validate_batch({.qo_indptr = zeros, .kv_indptr = zeros}, spec, 1).ok());
}

TEST(Validate, QueriesMayBeASliceOfAFusedProjection) {
  Scene scene;
  scene.call.q.stride[0] = 64;
  EXPECT_TRUE(scene.check().ok()) << scene.check().text();
}

TEST(Validate, Append) {
  Scene scene;
  const std::vector<std::int64_t> slots{3, -1, 39};
  scene.call.slot_mapping = slots;
  scene.call.k = TensorView::dense(scene.memory.data(), DType::f32, {3, 2, 8});
  scene.call.v = scene.call.k;
  EXPECT_TRUE(validate_append(scene.call, scene.spec, 4, KvLayout::nhd).ok());
  EXPECT_TRUE(validate_slots(slots, 40).ok());
  EXPECT_THAT(validate_slots(slots, 39).text(), HasSubstr("slot_mapping[2] = 39"));
  scene.call.k.dtype = DType::fp8_e4m3;
  EXPECT_THAT(validate_append(scene.call, scene.spec, 4, KvLayout::nhd).text(),
              HasSubstr("new keys must be"));
  scene.call.k = TensorView::dense(scene.memory.data(), DType::f32, {2, 2, 8});
  EXPECT_THAT(validate_append(scene.call, scene.spec, 4, KvLayout::nhd).text(),
              HasSubstr("k: want shape [3, 2, 8], have [2, 2, 8]"));
}

}  // namespace
}  // namespace attune::attention
