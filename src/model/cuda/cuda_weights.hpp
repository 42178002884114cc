// Weights in a GPU's memory (layer model): matrices stacked in the dtype that products read, one a
// head, or one set of experts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "device/cuda/memory.hpp"
#include "kernels/ops/cuda/rows.hpp"
#include "model/ops.hpp"

namespace attune::model::cuda {

[[nodiscard]] kernels::ops::cuda::Gated gated_of(const ActivationParams& params);

class CudaLinear final : public Linear {
 public:
  /// The parts, one below the other, in device memory.
  static Result<std::unique_ptr<CudaLinear>> make(std::span<const LinearParts> parts, DType dtype);

  [[nodiscard]] std::int64_t rows() const override { return rows_; }
  [[nodiscard]] std::int64_t columns() const override { return columns_; }
  [[nodiscard]] void* numbers() const { return numbers_.data(); }
  /// [rows] fp32, or nullptr.
  [[nodiscard]] const float* bias() const { return static_cast<const float*>(bias_.data()); }

 private:
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  device::cuda::Memory numbers_;
  device::cuda::Memory bias_;
};

/// One below the other, for a batched product.
class CudaHeadLinears final : public HeadLinears {
 public:
  CudaHeadLinears(std::unique_ptr<CudaLinear> stack, std::int64_t num_heads)
      : stack_(std::move(stack)), num_heads_(num_heads) {}
  [[nodiscard]] std::int64_t num_heads() const { return num_heads_; }
  [[nodiscard]] std::int64_t rows() const { return stack_->rows() / num_heads_; }  ///< of a head
  [[nodiscard]] std::int64_t columns() const { return stack_->columns(); }
  [[nodiscard]] void* numbers() const { return stack_->numbers(); }

 private:
  std::unique_ptr<CudaLinear> stack_;
  std::int64_t num_heads_;
};

class CudaExperts final : public Experts {
 public:
  static Result<std::unique_ptr<CudaExperts>> make(const ExpertParts& parts, DType dtype);

  [[nodiscard]] int num_experts() const override { return weights_.num_experts; }
  [[nodiscard]] const kernels::ops::cuda::ExpertWeights& weights() const { return weights_; }

 private:
  std::unique_ptr<CudaLinear> gate_up_;
  std::unique_ptr<CudaLinear> down_;
  kernels::ops::cuda::ExpertWeights weights_;
};

}  // namespace attune::model::cuda
