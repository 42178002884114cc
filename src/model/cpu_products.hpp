// y = x · Wᵀ + bias on the CPU (layer model): picks the product for a weight's form and the number
// of rows, and runs it on the executor's threads.
//
//   quantised        repacked blocks times 8-bit activations, any number of rows
//   plain, few rows  gemv: the weights are read once, activations stay fp32
//   plain, more      oneDNN; fp16 and, without fast bf16, bf16 go through fp32 in pieces
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "kernels/ops/matmul.hpp"
#include "model/aligned_bytes.hpp"
#include "model/cpu_kernels.hpp"
#include "model/cpu_linear.hpp"

namespace attune::model {

/// Owns the compiled products and the scratch memory; one caller at a time.
class CpuProducts {
 public:
  CpuProducts(Executor& executor, const CpuKernels& kernels, bool batch_invariant);

  struct Matrix {
    float* data = nullptr;
    std::int64_t num_rows = 0;
    std::int64_t stride = 0;
  };
  Status multiply(const CpuLinear& w, const Matrix& x, const Matrix& y, bool accumulate);

 private:
  /// Activations in 8 bits, and the sums that each layout of a weight needs of them.
  struct Quantised {
    std::vector<std::int8_t> q;
    std::vector<float> scale;
    std::vector<std::int32_t> sums16;
    struct Sums {
      std::vector<std::int32_t> start;
      std::vector<float> sums;
    };
    std::vector<Sums> by_layout;
  };

  void quantise(const CpuLinear& w, const Matrix& x);
  void run_job(const CpuLinear& w, const CpuLinear::Job& job, const Matrix& x, const Matrix& y,
               bool accumulate) const;
  Status multiply_by_library(const CpuLinear::Segment& segment, const Matrix& x, const Matrix& y,
                             bool accumulate);
  Status run_plan(const kernels::ops::MatmulShape& shape, const void* x, const void* w, float* y);

  Executor& executor_;
  CpuKernels kernels_;
  bool batch_invariant_;
  kernels::ops::Matmul matmul_;
  Quantised quantised_;
  std::vector<std::uint16_t> x_bf16_;
  std::vector<float> piece_;  // of a weight, in fp32
};

}  // namespace attune::model
