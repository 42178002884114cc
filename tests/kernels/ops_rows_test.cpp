#include "kernels/ops/rows.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <attune/device.hpp>

namespace attune::kernels::ops {
namespace {

constexpr std::int64_t kSizes[] = {1, 7, 8, 15, 16, 17, 64, 80, 131};

class OpsRows : public testing::TestWithParam<const RowKernels*> {
 protected:
  void SetUp() override {
    const CpuIsa needs = GetParam() == &kAvx512Rows ? CpuIsa::avx512 : CpuIsa::avx2;
    if (cpu_device().isa < needs) GTEST_SKIP() << "this CPU has no " << name(needs);
  }
  std::vector<float> random(std::int64_t n, float size = 4) {
    std::normal_distribution<float> normal(0, size);
    std::vector<float> v(static_cast<std::size_t>(n) + 4, std::nanf(""));
    for (std::int64_t i = 0; i < n; ++i) v[static_cast<std::size_t>(i)] = normal(engine_);
    return v;
  }
  /// Both tables fill n numbers of `out`; NaN behind them must survive.
  template <class Run>
  void compare(std::int64_t n, double tolerance, Run&& run) {
    std::vector<float> want = start_, have = start_;
    want.resize(static_cast<std::size_t>(n) + 4, std::nanf(""));
    have.resize(static_cast<std::size_t>(n) + 4, std::nanf(""));
    run(kScalarRows, want.data());
    run(*GetParam(), have.data());
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i])) {
        ASSERT_TRUE(std::isnan(have[i])) << n << ": " << i;
      } else if (std::isinf(want[i])) {
        ASSERT_EQ(have[i], want[i]);
      } else {
        ASSERT_NEAR(have[i], want[i], tolerance * (1 + std::abs(want[i]))) << n << ": " << i;
      }
    }
  }
  std::mt19937 engine_{17};
  std::vector<float> start_;  // of the output, for what reads it
};

INSTANTIATE_TEST_SUITE_P(Tables, OpsRows, testing::Values(&kAvx2Rows, &kAvx512Rows),
                         [](const auto& table) { return std::string(table.param->name); });

TEST_P(OpsRows, Norms) {
  for (std::int64_t n : kSizes) {
    const auto x = random(n), w = random(n), b = random(n);
    for (const float* weight : {static_cast<const float*>(nullptr), w.data()})
      for (const float* bias : {static_cast<const float*>(nullptr), b.data()}) {
        NormRow row{.x = x.data(),
                    .weight = weight,
                    .bias = bias,
                    .weight_offset = 1,
                    .eps = 1e-5f,
                    .n = n};
        compare(n, 2e-6, [&](const RowKernels& k, float* out) {
          row.out = out;
          k.rms_norm(row);
        });
        compare(n, 1e-5, [&](const RowKernels& k, float* out) {
          row.out = out;
          k.layer_norm(row);
        });
      }
  }
}

TEST_P(OpsRows, Activations) {
  for (std::int64_t n : kSizes) {
    auto x = random(2 * n, 6);
    x[0] = 200.0f;
    if (n > 1) x[1] = -200.0f;
    for (RowActivation kind :
         {RowActivation::silu, RowActivation::gelu, RowActivation::gelu_tanh, RowActivation::relu,
          RowActivation::relu2, RowActivation::swiglu_oai}) {
      compare(n, 2e-6,
              [&](const RowKernels& k, float* out) { k.activate(kind, x.data(), n, out); });
      for (float limit : {0.0f, 7.0f})
        for (std::int64_t stride : {1, 2})
          compare(n, 5e-6, [&](const RowKernels& k, float* out) {
            k.gated({.kind = kind,
                     .gate = x.data(),
                     .up = stride == 1 ? x.data() + n : x.data() + 1,
                     .stride = stride,
                     .n = n,
                     .limit = limit,
                     .out = out});
          });
    }
  }
}

TEST_P(OpsRows, Rope) {
  for (std::int64_t pairs : {1, 8, 20, 32, 48}) {
    start_ = random(2 * pairs);
    const auto cos = random(pairs, 1), sin = random(pairs, 1);
    for (bool interleaved : {false, true})
      for (float direction : {1.0f, -1.0f})
        compare(2 * pairs, 1e-6, [&](const RowKernels& k, float* out) {
          k.rope(out, cos.data(), sin.data(), pairs, interleaved, direction);
        });
  }
}

TEST_P(OpsRows, Softmax) {
  for (std::int64_t n : kSizes) {
    auto x = random(n, 10);
    if (n > 2) x[2] = -std::numeric_limits<float>::infinity();
    compare(n, 1e-6, [&](const RowKernels& k, float* out) { k.softmax(x.data(), n, out); });
  }
}

TEST_P(OpsRows, Elementwise) {
  for (std::int64_t n : kSizes) {
    const auto x = random(n), y = random(n);
    compare(n, 1e-7, [&](const RowKernels& k, float* out) { k.scale(x.data(), 0.3f, n, out); });
    compare(n, 1e-7,
            [&](const RowKernels& k, float* out) { k.multiply(x.data(), y.data(), n, out); });
    compare(n, 1e-6, [&](const RowKernels& k, float* out) {
      k.sigmoid_multiply(x.data(), y.data(), n, out);
    });
    compare(n, 1e-6, [&](const RowKernels& k, float* out) { k.soft_cap(x.data(), 3, n, out); });
    start_ = random(n);
    compare(n, 1e-6,
            [&](const RowKernels& k, float* out) { k.add_scaled(x.data(), 0.7f, n, out); });
    start_.clear();
  }
}

TEST_P(OpsRows, NarrowFloatsExactly) {
  for (std::int64_t n : kSizes) {
    auto x = random(n, 100);
    x[0] = std::numeric_limits<float>::infinity();
    if (n > 1) x[1] = 1e-6f;
    const auto count = static_cast<std::size_t>(n);
    std::vector<std::uint16_t> want(count), have(count);
    std::vector<float> back(count), back_want(count);
    kScalarRows.to_bf16(x.data(), n, want.data());
    GetParam()->to_bf16(x.data(), n, have.data());
    EXPECT_EQ(have, want);
    kScalarRows.from_bf16(want.data(), n, back_want.data());
    GetParam()->from_bf16(want.data(), n, back.data());
    EXPECT_EQ(back, back_want);
    kScalarRows.to_f16(x.data(), n, want.data());
    GetParam()->to_f16(x.data(), n, have.data());
    EXPECT_EQ(have, want);
    kScalarRows.from_f16(want.data(), n, back_want.data());
    GetParam()->from_f16(want.data(), n, back.data());
    EXPECT_EQ(back, back_want);
  }
}

}  // namespace
}  // namespace attune::kernels::ops
