// y = x · Wᵀ + bias on the CPU (layer model): picks the product for a weight's form and the number
// of rows, and runs it on the executor's threads.
//
//   quantised        repacked blocks times 8-bit activations, any number of rows
//   plain, few rows  gemv: the weights are read once, activations stay fp32
//   plain, more      oneDNN; fp16 and, without fast bf16, bf16 go through fp32 in pieces
//
// The first two form each row's sums in one order whatever stands beside it; batch-invariant
// products use nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "kernels/ops/matmul.hpp"
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
  /// y = x · wᵀ + bias, or y += that.
  struct Product {
    const CpuLinear* w = nullptr;
    Matrix x;
    Matrix y;
    bool accumulate = false;
  };
  /// Independent products at once: the threads share out the work of all of them.
  Status multiply(std::span<const Product> products);
  Status multiply(const Product& product) { return multiply(std::span(&product, 1)); }

 private:
  /// Where the converted activations of one product begin: the rows of all products follow each
  /// other.
  struct Place {
    std::int64_t row = 0;
    std::int64_t number = 0;
    bool quantised = false;
    bool rounded = false;  ///< to bf16
  };
  /// What the weights of one layout need besides quantised activations, [row of all, group].
  struct Sums {
    kernels::quant_matmul::Layout layout;
    std::vector<std::int32_t> start;
    std::vector<float> sums;
  };
  /// A job of a product, or a part of a library product with one segment.
  struct Task {
    const Product* product = nullptr;
    const Place* place = nullptr;
    const CpuLinear::Job* job = nullptr;
    const CpuLinear::Segment* segment = nullptr;
    std::shared_ptr<const kernels::ops::MatmulPlan> plan{};
    std::int64_t part = 0;
  };

  void place_activations(std::span<const Product> products);
  void convert_row(const Product& product, const Place& place, std::int64_t row);
  Status add_tasks(std::span<const Product> products);
  void run_job(const Task& task) const;
  Status run_part(const Task& task, int thread) const;
  Status multiply_in_pieces(const Product& product, const CpuLinear::Segment& segment);
  void add_bias(const Product& product, const CpuLinear::Segment& segment) const;
  [[nodiscard]] bool by_library(const Product& p, const CpuLinear::Segment& s) const;
  [[nodiscard]] bool in_pieces(const Product& p, const CpuLinear::Segment& s) const;
  Sums& sums_of(const kernels::quant_matmul::Layout& layout);

  Executor& executor_;
  CpuKernels kernels_;
  bool batch_invariant_;
  kernels::ops::Matmul matmul_;
  std::vector<Place> places_;
  std::vector<Task> tasks_;
  std::vector<Status> failures_;  // by thread
  std::vector<std::int8_t> q_;
  std::vector<float> scale_;
  std::vector<std::int32_t> sums16_;
  std::vector<Sums> sums_;
  std::vector<std::uint16_t> bf16_;
  std::vector<float> piece_;  // of a weight, in fp32
};

}  // namespace attune::model
