#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <attune/device.hpp>

#include "kernels/gemv/table.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::kernels::gemv {
namespace {

std::vector<std::byte> stored(const std::vector<float>& values, DType type) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte* p = bytes.data() + i * size_of(type);
    if (type == DType::f32) std::memcpy(p, &values[i], 4);
    if (type == DType::bf16) {
      const auto v = tensor::to_bf16(values[i]);
      std::memcpy(p, &v.bits, 2);
    }
    if (type == DType::f16) {
      const auto v = tensor::round_to<tensor::F16>(values[i]);
      std::memcpy(p, &v.bits, 2);
    }
  }
  return bytes;
}

TEST(Gemv, EqualsTheProduct) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (CpuIsa isa : {CpuIsa::scalar, CpuIsa::avx2, CpuIsa::avx512}) {
    if (cpu_device().isa < isa) continue;
    for (DType type : {DType::f32, DType::bf16, DType::f16}) {
      const KernelRow& kernel = find(static_cast<simd::Isa>(isa), type);
      ASSERT_EQ(static_cast<CpuIsa>(kernel.isa), isa);
      for (std::int64_t k : {1, 16, 71, 96, 2100})
        for (std::int64_t n : {1, 4, 11})
          for (std::int64_t rows = 1; rows <= kMaxRows; ++rows) {
            // Exact in all three types.
            std::vector<float> w(static_cast<std::size_t>(n * k));
            for (float& v : w) v = std::round(uniform(random) * 100) / 128;
            const auto bytes = stored(w, type);
            const std::int64_t x_stride = k + 5;
            std::vector<float> x(static_cast<std::size_t>(rows * x_stride),
                                 std::numeric_limits<float>::quiet_NaN());
            for (std::int64_t r = 0; r < rows; ++r)
              for (std::int64_t i = 0; i < k; ++i)
                x[static_cast<std::size_t>(r * x_stride + i)] = uniform(random);
            std::vector<float> y(static_cast<std::size_t>(rows * (n + 2)), -3.0f);
            Params p{.w = bytes.data(),
                     .num_columns = n,
                     .k = k,
                     .x = x.data(),
                     .x_stride = x_stride,
                     .num_rows = rows,
                     .y = y.data(),
                     .y_stride = n + 2};
            kernel.multiply(p);
            p.accumulate = true;
            kernel.multiply(p);
            for (std::int64_t r = 0; r < rows; ++r) {
              for (std::int64_t j = 0; j < n; ++j) {
                double want = 0;
                for (std::int64_t i = 0; i < k; ++i)
                  want += static_cast<double>(w[static_cast<std::size_t>(j * k + i)]) *
                          x[static_cast<std::size_t>(r * x_stride + i)];
                ASSERT_NEAR(y[static_cast<std::size_t>(r * (n + 2) + j)], 2 * want,
                            1e-5 * std::sqrt(double(k)))
                    << kernel.name << " k " << k << " n " << n << " rows " << rows;
              }
              for (std::int64_t j = n; j < n + 2; ++j)
                ASSERT_EQ(y[static_cast<std::size_t>(r * (n + 2) + j)], -3.0f);
            }
          }
    }
  }
}

}  // namespace
}  // namespace attune::kernels::gemv
