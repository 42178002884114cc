// Weight matrices on the CPU and products with them (layer model).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "kernels/ops/matmul.hpp"
#include "kernels/ops/rows.hpp"
#include "model/cpu_ops.hpp"
#include "model/ops.hpp"

namespace attune::model {

/// Stacked matrices with equal columns. A segment keeps the form its product reads: a view of the
/// file, or a converted copy.
class CpuLinear final : public Linear {
 public:
  struct Segment {
    WeightView view;
    std::vector<std::byte> copy;  ///< what view points to, unless that is the file
    std::int64_t first_row = 0;
  };

  static Result<std::unique_ptr<CpuLinear>> make(const LinearParts& parts, CpuWeights form,
                                                 Executor& executor);

  [[nodiscard]] std::int64_t rows() const override { return rows_; }
  [[nodiscard]] std::int64_t columns() const override { return columns_; }
  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
  [[nodiscard]] const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }

 private:
  std::vector<Segment> segments_;
  std::vector<float> bias_;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
};

/// y = x · Wᵀ + bias. Owns the compiled products and the scratch memory; one caller at a time.
class CpuProducts {
 public:
  CpuProducts(Executor& executor, const kernels::ops::RowKernels& rows);

  struct Matrix {
    float* data = nullptr;
    std::int64_t num_rows = 0;
    std::int64_t stride = 0;
  };
  Status multiply(const CpuLinear& w, const Matrix& x, const Matrix& y, bool accumulate);

 private:
  Status multiply_segment(const CpuLinear::Segment& segment, const void* x, DType x_type,
                          std::int64_t x_stride, const Matrix& y, bool accumulate);

  Executor& executor_;
  const kernels::ops::RowKernels& rows_;
  kernels::ops::Matmul matmul_;
  std::vector<std::uint16_t> x_bf16_;
};

}  // namespace attune::model
