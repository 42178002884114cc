// The AMX backend against the fp64 reference, on emulated tiles and on real ones where this machine
// has them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "backends/dense_problem.hpp"
#include "backends/intel_amx/descriptor.hpp"
#include "backends/intel_amx/emulated.hpp"
#include "backends/reference/descriptor.hpp"
#include "base/join.hpp"
#include "device/thread_pool.hpp"

namespace attune::backends::intel_amx {
namespace {

using test::Case;
using test::dense_spec;
using test::expect_close;
using test::mla_spec;
using test::Problem;
using test::tolerance;

/// Both kinds of tiles; int8 keys with and without products of bytes.
void check_tiles(const Case& c) {
  Problem problem(c);
  const Problem::Answer right = problem.solve(&reference::make, {});
  auto pool = device::ThreadPool::make({.num_threads = 2});
  ASSERT_TRUE(pool.ok());
  BackendContext context{.device = cpu_device(), .executor = pool->get()};
  SCOPED_TRACE(base::join("kv ", name(c.spec.kv_dtype)));
  const auto lse_tolerance = [&] {
    // Queries in two digits are good to 2^-15 of the row's largest.
    const bool digits = context.device.has_amx_int8 && c.spec.kv_dtype == DType::i8;
    return digits ? 5e-4 : 2e-5;
  };
  if (context.device.isa >= CpuIsa::amx)
    expect_close(problem.solve(&make, context), right, tolerance(c.spec), lse_tolerance());
  for (const bool int8_products : {true, false}) {
    if (!int8_products && c.spec.kv_dtype != DType::i8) continue;
    SCOPED_TRACE(int8_products);
    context.device.has_amx_int8 = int8_products;
    expect_close(problem.solve(&make_emulated, context), right, tolerance(c.spec), lse_tolerance());
  }
}

/// Logits so far apart that a row's maximum moves within a panel of keys, after weights were
/// formed.
TEST(IntelAmxBackend, RisingMaxima) {
  Case c{.spec = dense_spec(6, 2, 64, 64, DType::bf16), .requests = {{40, 700}, {3, 300}}};
  c.spec.sm_scale = 2.0f;
  check_tiles(c);
}

/// Whether a block of rows meets packed keys or keys in place depends on its size, its bits must
/// not where neighbours may not matter.
TEST(IntelAmxBackend, RowsGetTheSameBitsInBlocksOfAnySize) {
  for (const DType kv : {DType::bf16, DType::i8, DType::fp8_e4m3}) {
    Case many{.spec = dense_spec(8, 2, 64, 64, DType::bf16), .requests = {{90, 700}}};
    many.page_size = 16;
    many.spec.kv_dtype = kv;
    many.spec.sm_scale = 1.0f;  // maxima move
    Case few = many;
    few.requests = {{5, 700}};
    BackendContext context{.device = cpu_device(), .batch_invariant = true};
    context.device.has_amx_int8 = true;
    Problem large(many);
    Problem small(few);
    small.take_last_queries(large);
    const auto all = large.solve(&make_emulated, context).o;
    const auto last = small.solve(&make_emulated, context).o;
    ASSERT_LT(last.size(), all.size());
    EXPECT_TRUE(std::equal(last.rbegin(), last.rend(), all.rbegin())) << name(kv);
  }
}

TEST(IntelAmxBackend, TilesOverAwkwardShapes) {
  for (const DType kv : {DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8}) {
    const int shapes[][4] = {{4, 2, 64, 64}, {3, 1, 80, 96}, {71, 1, 40, 24}, {5, 5, 33, 100}};
    for (const auto& s : shapes) {
      Case c{.spec = dense_spec(s[0], s[1], s[2], s[3], DType::bf16),
             .requests = {{17, 17}, {1, 70}, {3, 2}, {0, 0}, {40, 130}},
             .page_size = 3};
      c.spec.kv_dtype = kv;
      check_tiles(c);
    }
  }
  check_tiles({.spec = mla_spec(18, DType::bf16),
               .requests = {{1, 100}, {1, 1}},
               .layout = KvLayout::mla_latent,
               .form = BatchForm::decode});
}

/// Values that are multiplied as part of their keys, in whole and in torn pages.
TEST(IntelAmxBackend, LatentKeysInPlace) {
  for (const int heads : {1, 16, 18, 40}) {
    for (const std::int32_t page_size : {64, 3}) {
      check_tiles({.spec = mla_spec(heads, DType::bf16),
                   .requests = {{1, 150}, {1, 64}, {1, 0}, {1, 1}, {2, 65}},
                   .layout = KvLayout::mla_latent,
                   .page_size = page_size});
    }
  }
  // Maxima that move, and hidden keys whose values are not finite.
  Case c{.spec = mla_spec(5, DType::bf16),
         .requests = {{4, 200}, {3, 9}},
         .layout = KvLayout::mla_latent,
         .page_size = 64};
  c.spec.sm_scale = 2.0f;
  check_tiles(c);
  c.poisoned = 2;
  check_tiles(c);
  c.spec.custom_mask = c.spec.sinks = true;
  check_tiles(c);
  c.spec.custom_mask = false;
  c.spec.window_left = 70;
  check_tiles(c);
}

/// Runs of 16 keys that begin and end anywhere, groups that share a tile's columns evenly or not.
TEST(IntelAmxBackend, DecodeOfFp8Keys) {
  for (const DType kv : {DType::fp8_e4m3, DType::fp8_e5m2}) {
    const int shapes[][4] = {
        {8, 2, 128, 128}, {3, 3, 64, 256}, {15, 3, 128, 64}, {7, 1, 192, 128}, {40, 5, 128, 128}};
    for (const auto& s : shapes) {
      for (const KvLayout layout : {KvLayout::hnd, KvLayout::nhd}) {
        Case c{.spec = dense_spec(s[0], s[1], s[2], s[3], DType::bf16),
               .requests = {{1, 1}, {1, 15}, {1, 64}, {1, 0}, {1, 400}},
               .layout = layout,
               .page_size = layout == KvLayout::hnd ? 16 : 3,
               .form = BatchForm::decode};
        c.spec.kv_dtype = kv;
        check_tiles(c);
        c.spec.sm_scale = 2.0f;  // maxima move
        c.spec.window_left = 77;
        check_tiles(c);
        c.spec.sinks = c.spec.alibi = c.spec.custom_mask = true;
        c.spec.logits_soft_cap = 20.0f;
        check_tiles(c);
      }
    }
  }
}

/// More latent rows than those that meet values in place, in blocks whose last strip is not full.
TEST(IntelAmxBackend, ManyLatentRows) {
  for (const int heads : {33, 128}) {
    for (const std::int32_t page_size : {64, 5}) {
      Case c{.spec = mla_spec(heads, DType::bf16),
             .requests = {{1, 300}, {1, 129}, {2, 64}, {1, 1}, {1, 0}},
             .layout = KvLayout::mla_latent,
             .page_size = page_size};
      check_tiles(c);
      c.spec.sm_scale = 2.0f;
      c.poisoned = 2;
      check_tiles(c);
      c.spec.window_left = 70;
      check_tiles(c);
    }
  }
}

TEST(IntelAmxBackend, FeaturesAndHiddenNaN) {
  Case c{.spec = dense_spec(6, 2, 64, 64, DType::bf16), .requests = {{33, 90}, {5, 5}}};
  c.spec.sinks = c.spec.alibi = c.spec.custom_mask = true;
  c.spec.logits_soft_cap = 20.0f;
  c.poisoned = 3;
  check_tiles(c);
  c.spec.custom_mask = false;
  c.spec.window_left = 11;
  check_tiles(c);
}

TEST(IntelAmxBackend, RefusesWithoutTiles) {
  BackendContext context{.spec = dense_spec(4, 2, 64, 64, DType::bf16),
                         .device = cpu_device(CpuIsa::avx512_bf16)};
  EXPECT_FALSE(make(context).ok());
  context.device.isa = CpuIsa::amx;
  context.spec.q_dtype = DType::f16;
  EXPECT_FALSE(make(context).ok());
}

}  // namespace
}  // namespace attune::backends::intel_amx
