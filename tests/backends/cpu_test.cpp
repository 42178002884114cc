// The cpu backend against the fp64 reference, in every dtype and on every instruction set that this
// machine has.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/cpu/descriptor.hpp"
#include "backends/dense_problem.hpp"
#include "backends/reference/descriptor.hpp"
#include "base/join.hpp"
#include "device/thread_pool.hpp"

namespace attune::backends::cpu {
namespace {

using test::Case;
using test::dense_spec;
using test::expect_close;
using test::mla_spec;
using test::Problem;
using test::Request;
using test::tolerance;

std::vector<CpuIsa> levels() {
  std::vector<CpuIsa> all;
  for (int i = 0; i <= static_cast<int>(cpu_device().isa); ++i)
    all.push_back(static_cast<CpuIsa>(i));
  return all;
}

void check(const Case& c, std::vector<int> threads = {1, 3}) {
  Problem problem(c);
  const Problem::Answer right = problem.solve(&reference::make, {});
  for (const CpuIsa isa : levels()) {
    for (const int n : threads) {
      SCOPED_TRACE(base::join("isa ", name(isa), ", threads ", n, ", q ", name(c.spec.q_dtype),
                              ", kv ", name(c.spec.kv_dtype)));
      auto pool = device::ThreadPool::make({.num_threads = n});
      ASSERT_TRUE(pool.ok());
      BackendContext context{.device = cpu_device(isa), .executor = pool->get()};
      const auto mine = problem.solve(&make, context);
      // Queries as two digits are off by up to 1/32638 of a row's largest.
      const bool digits = c.spec.kv_dtype == DType::i8 && c.spec.q_dtype == DType::bf16 &&
                          isa >= CpuIsa::avx512_bf16;
      expect_close(mine, right, tolerance(c.spec), digits ? 3e-4 : 2e-5);
    }
  }
}

const std::vector<Request> kAwkward{{1, 1},  {1, 15}, {1, 16},  {1, 17}, {1, 0},
                                    {1, 64}, {1, 65}, {1, 130}, {1, 63}, {1, 333}};
const std::vector<Request> kPrompts{{5, 5}, {17, 17}, {1, 40}, {70, 200}, {3, 2}, {0, 0}, {64, 65}};

TEST(CpuBackend, DecodesEveryDtype) {
  for (const DType kv :
       {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8}) {
    for (const DType q : {DType::f32, DType::bf16, DType::f16}) {
      Case c{.spec = dense_spec(8, 2, 64, 64, q), .requests = kAwkward, .form = BatchForm::decode};
      c.spec.kv_dtype = kv;
      check(c, {1});
    }
  }
}

TEST(CpuBackend, PrefillsEveryDtype) {
  for (const DType kv :
       {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8}) {
    for (const DType q : {DType::f32, DType::bf16, DType::f16}) {
      Case c{.spec = dense_spec(4, 2, 48, 48, q), .requests = kPrompts};
      c.spec.kv_dtype = kv;
      check(c, {1});
    }
  }
}

TEST(CpuBackend, AwkwardHeadsAndDims) {
  const int shapes[][4] = {{3, 1, 80, 80},   {9, 1, 96, 96},    {71, 1, 64, 64}, {5, 5, 40, 24},
                           {7, 1, 192, 128}, {4, 2, 16, 256},   {6, 2, 1, 3},    {2, 1, 100, 33},
                           {5, 1, 72, 72},   {12, 2, 112, 112}, {16, 1, 8, 16},  {64, 1, 16, 16}};
  for (const auto& s : shapes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      check({.spec = dense_spec(s[0], s[1], s[2], s[3], dtype),
             .requests = {{1, 70}, {1, 3}, {9, 75}},
             .form = BatchForm::mixed},
            {1});
      check({.spec = dense_spec(s[0], s[1], s[2], s[3], dtype),
             .requests = {{1, 131}, {1, 1}},
             .form = BatchForm::decode},
            {1});
    }
  }
}

TEST(CpuBackend, LayoutsAndPageSizes) {
  for (const std::int32_t page : {1, 3, 16, 64, 256}) {
    for (const KvLayout layout : {KvLayout::nhd, KvLayout::hnd}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        check({.spec = dense_spec(4, 2, 64, 32, dtype),
               .requests = kPrompts,
               .layout = layout,
               .page_size = page},
              {2});
        check({.spec = dense_spec(4, 2, 64, 32, dtype),
               .requests = kAwkward,
               .layout = layout,
               .page_size = page,
               .form = BatchForm::decode},
              {2});
      }
    }
  }
}

TEST(CpuBackend, RaggedKeys) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool causal : {false, true}) {
      Case c{.spec = dense_spec(6, 2, 192, 128, dtype),
             .requests = kPrompts,
             .source = KvSource::ragged};
      c.spec.causal = causal;
      check(c);
    }
  }
}

TEST(CpuBackend, EveryFeature) {
  const auto with = [](auto change) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool decode : {false, true}) {
        Case c{.spec = dense_spec(6, 2, 64, 64, dtype),
               .requests = decode ? kAwkward : kPrompts,
               .form = decode ? BatchForm::decode : BatchForm::extend,
               .seed = 7};
        change(c);
        check(c, {2});
      }
    }
  };
  with([](Case& c) { c.spec.logits_soft_cap = 5.0f; });
  with([](Case& c) { c.spec.sinks = true; });
  with([](Case& c) { c.spec.alibi = true; });
  with([](Case& c) { c.spec.window_left = 20; });
  with([](Case& c) {
    c.spec.window_left = 20;
    c.windowed_pool = true;
  });
  with([](Case& c) {
    c.spec.causal = false;
    c.spec.window_left = 9;
    c.spec.window_right = 4;
  });
  with([](Case& c) { c.spec.causal = false; });
  with([](Case& c) { c.spec.attention_chunk = 48; });
  with([](Case& c) { c.spec.xai_temperature_len = 16; });
  with([](Case& c) { c.spec.custom_mask = true; });
  with([](Case& c) { c.spec.kv_scales = true; });
  with([](Case& c) { c.spec.kv_scales = c.spec.per_head_scales = true; });
  with([](Case& c) {
    c.spec.custom_mask = c.spec.alibi = c.spec.sinks = c.spec.kv_scales = true;
    c.spec.logits_soft_cap = 20.0f;
    c.spec.window_left = 33;
    c.spec.xai_temperature_len = 24;
  });
}

TEST(CpuBackend, LatentKeys) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int heads : {1, 16, 128}) {
      check({.spec = mla_spec(heads, dtype),
             .requests = {{1, 100}, {1, 64}, {1, 0}, {1, 1}},
             .layout = KvLayout::mla_latent,
             .page_size = 64,
             .form = BatchForm::decode},
            {2});
    }
    check({.spec = mla_spec(4, dtype),
           .requests = {{7, 100}, {2, 2}},
           .layout = KvLayout::mla_latent,
           .page_size = 16},
          {1});
    check({.spec = mla_spec(4, dtype),
           .requests = {{7, 9}},
           .source = KvSource::ragged,
           .layout = KvLayout::mla_latent},
          {1});
  }
}

TEST(CpuBackend, SplitsLongRequests) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case c{.spec = dense_spec(4, 1, 64, 64, dtype),
           .requests = {{1, 5000}, {1, 3}, {1, 0}, {1, 17}},
           .form = BatchForm::decode};

    c.spec.sinks = true;
    check(c, {1, 2, 8});
    c.requests = {{4, 4100}, {1, 2}};
    c.form = BatchForm::mixed;
    check(c, {3, 8});
    // One decoding request in a batch that is not called decode: more rows than query tokens.
    c = {.spec = dense_spec(8, 4, 64, 64, dtype), .requests = {{1, 5000}}};
    check(c, {2});
  }
}

TEST(CpuBackend, SameBitsTwiceAndBesideAnyNeighbour) {
  auto pool = device::ThreadPool::make({.num_threads = 3});
  ASSERT_TRUE(pool.ok());
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case alone{.spec = dense_spec(4, 2, 64, 64, dtype), .requests = {{1, 9000}}};
    alone.form = BatchForm::decode;
    Case crowd = alone;
    for (int i = 0; i < 20; ++i) crowd.requests.push_back({1, 50 + i});
    const BackendContext context{
        .device = cpu_device(), .executor = pool->get(), .batch_invariant = true};
    Problem one(alone);
    const auto first = one.solve(&make, context);
    EXPECT_EQ(first.o_bytes, one.solve(&make, context).o_bytes);
    Problem many(crowd);
    const auto crowded = many.solve(&make, context);
    for (std::size_t i = 0; i < first.o.size(); ++i) ASSERT_EQ(first.o[i], crowded.o[i]) << i;
  }
}

/// Up to a vector of rows meet keys and values where they lie if the keys are evenly spaced, else
/// packed ones: how a request's pages lie must not show in its bits.
TEST(CpuBackend, KeysInPlaceGiveTheBitsOfPackedOnes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const AttentionSpec& spec :
         {mla_spec(16, dtype), mla_spec(5, dtype), dense_spec(24, 2, 66, 64, dtype)}) {
      Case c{.spec = spec, .requests = {{1, 700}, {1, 64}, {1, 131}}, .page_size = 64};
      c.form = BatchForm::decode;
      if (spec.variant == Variant::mla) c.layout = KvLayout::mla_latent;
      const BackendContext context{.device = cpu_device()};
      const auto even = Problem(c).solve(&make, context);
      expect_close(even, Problem(c).solve(&reference::make, {}), tolerance(c.spec));
      for (const std::int32_t page_size : {16, 4, 1}) {
        c.page_size = page_size;
        EXPECT_EQ(even.o_bytes, Problem(c).solve(&make, context).o_bytes) << page_size;
      }
    }
  }
}

TEST(CpuBackend, HiddenNaNValuesDoNotLeak) {
  // The last tokens' keys and values are NaN: earlier rows must not notice, later ones must.
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool masked : {false, true}) {
      Case c{.spec = dense_spec(2, 1, 64, 64, dtype), .requests = {{40, 40}, {90, 100}}};
      c.spec.custom_mask = masked;
      c.poisoned = 5;
      check(c, {1});
      c.source = KvSource::ragged;
      check(c, {1});
    }
  }
}

TEST(CpuBackend, RefusesWhatItCannotServe) {
  const auto refused = [](auto change) {
    BackendContext context{.spec = dense_spec(4, 2, 64, 64, DType::bf16), .device = cpu_device()};
    change(context);
    const auto made = make(context);
    EXPECT_FALSE(made.ok());
    return made.ok() ? std::string() : made.status().text();
  };
  refused([](BackendContext& c) { c.device.kind = DeviceKind::cuda; });
  refused([](BackendContext& c) { c.spec.variant = Variant::gdn; });
  refused([](BackendContext& c) { c.spec.relative_bias = true; });
  refused([](BackendContext& c) { c.spec.q_dtype = DType::fp8_e4m3; });
  refused([](BackendContext& c) { c.kv_layout = KvLayout::mla_latent; });
  refused([](BackendContext& c) { c.spec.kv_dtype = DType::i32; });
}

}  // namespace
}  // namespace attune::backends::cpu
