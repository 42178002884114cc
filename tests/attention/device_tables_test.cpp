// Batches whose page tables are on the device: what is refused on the host, and by whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <attune/validate.hpp>

namespace attune::attention {
namespace {

using ::testing::HasSubstr;

struct Scene {
  std::vector<std::int32_t> qo_indptr{0, 1, 2, 3};
  std::int32_t somewhere = 0;  // stands for device memory, which no check may read
  AttentionSpec spec{.num_qo_heads = 4,
                     .num_kv_heads = 2,
                     .head_dim_qk = 8,
                     .head_dim_vo = 8,
                     .sm_scale = 0.5f,
                     .q_dtype = DType::bf16,
                     .o_dtype = DType::bf16,
                     .kv_dtype = DType::bf16};
  BatchView batch{.form = BatchForm::decode,
                  .page_size = 4,
                  .qo_indptr = qo_indptr,
                  .on_device = {.kv_indptr = &somewhere,
                                .kv_indices = &somewhere,
                                .kv_last_page_len = &somewhere,
                                .max_kv_entries = 30,
                                .max_kv_len = 100}};
};

TEST(DeviceTables, BoundsStandForLengths) {
  const Scene scene;
  const auto facts = validate_device_batch(scene.batch, scene.spec, 4);
  ASSERT_TRUE(facts.ok()) << facts.status().text();
  EXPECT_EQ(facts->batch_size, 3);
  EXPECT_EQ(facts->num_qo_tokens, 3);
  EXPECT_EQ(facts->max_qo_len, 1);
  EXPECT_EQ(facts->max_kv_len, 100);
  EXPECT_EQ(facts->max_page_id, -1);
  const BatchBounds bounds = bounds_of(scene.batch);
  EXPECT_EQ(bounds.max_batch, 3);
  EXPECT_EQ(bounds.max_kv_entries, 30);
  EXPECT_EQ(bounds.max_kv_len, 100);
  EXPECT_TRUE(bounds.decode_only);
}

TEST(DeviceTables, WhoPlansOnTheHostSaysSo) {
  const Scene scene;
  const Status s = validate_batch(scene.batch, scene.spec, 4).status();
  EXPECT_EQ(s.code(), StatusCode::unsupported);
  EXPECT_THAT(s.text(), HasSubstr("device_planning"));
}

TEST(DeviceTables, WhatCannotBePlannedThereIsRefused) {
  const std::vector<std::int32_t> some{0, 1, 2, 3};
  const std::vector<std::int64_t> offsets{0, 0, 8};
  const std::vector<std::int32_t> extend{0, 1, 3};
  const struct {
    std::function<void(Scene&)> change;
    std::string says;
  } cases[] = {{[](Scene& s) { s.batch.on_device.kv_indices = nullptr; }, "all of kv_indptr"},
               {[&](Scene& s) { s.batch.kv_indptr = some; }, "not on both"},
               {[](Scene& s) { s.batch.form = BatchForm::mixed; }, "have form mixed"},
               {[](Scene& s) { s.batch.source = KvSource::ragged; }, "only paged"},
               {[](Scene& s) { s.batch.page_size = 8; }, "pages of 8"},
               {[](Scene& s) { s.batch.on_device.max_kv_len = -1; }, "below 2^31"},
               {[](Scene& s) {
                  s.batch.on_device.max_kv_entries =
                      std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;
                },
                "below 2^31"},
               {[&](Scene& s) { s.batch.kv_offset = offsets; }, "kv_offset"},
               {[](Scene& s) { s.spec.attention_chunk = 8; }, "attention_chunk"},
               {[](Scene& s) { s.spec.custom_mask = true; }, "custom mask"},
               {[&](Scene& s) { s.batch.qo_indptr = extend; }, "one query token"}};
  for (const auto& one : cases) {
    Scene scene;
    one.change(scene);
    EXPECT_THAT(validate_device_batch(scene.batch, scene.spec, 4).status().text(),
                HasSubstr(one.says));
  }
}

TEST(DeviceTables, NoRequestsAreNoWork) {
  Scene scene;
  scene.batch.qo_indptr = {};
  const auto facts = validate_device_batch(scene.batch, scene.spec, 4);
  ASSERT_TRUE(facts.ok()) << facts.status().text();
  EXPECT_EQ(facts->batch_size, 0);
}

}  // namespace
}  // namespace attune::attention
