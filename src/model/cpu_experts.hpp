// Mixtures of experts on the CPU (layer model).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "kernels/ops/rows.hpp"
#include "model/cpu_linear.hpp"
#include "model/cpu_products.hpp"
#include "model/ops.hpp"

namespace attune::model {

/// `x` holds gate and up of `width` numbers each.
[[nodiscard]] kernels::ops::GatedRow gated_row(const ActivationParams& params, const float* x,
                                               std::int64_t width, float* out);

class CpuExperts final : public Experts {
 public:
  static Result<std::unique_ptr<CpuExperts>> make(const ExpertParts& parts,
                                                  const Conversion& conversion);

  [[nodiscard]] int num_experts() const override { return static_cast<int>(gate_up_.size()); }
  [[nodiscard]] const CpuLinear& gate_up(std::int64_t e) const {
    return *gate_up_[static_cast<std::size_t>(e)];
  }
  [[nodiscard]] const CpuLinear& down(std::int64_t e) const {
    return *down_[static_cast<std::size_t>(e)];
  }
  [[nodiscard]] const ActivationParams& activation() const { return activation_; }

 private:
  std::vector<std::unique_ptr<CpuLinear>> gate_up_;
  std::vector<std::unique_ptr<CpuLinear>> down_;
  ActivationParams activation_;
};

/// Tokens sorted by expert, then the products of all experts at once.
class CpuExpertProducts {
 public:
  CpuExpertProducts(Executor& executor, const kernels::ops::RowKernels& rows, CpuProducts& products)
      : executor_(executor), rows_(rows), products_(products) {}

  struct Call {
    CpuProducts::Matrix x;
    const std::int32_t* ids = nullptr;  ///< [tokens, topk]
    const float* weights = nullptr;     ///< [tokens, topk]
    std::int64_t topk = 0;
    bool scale_input = false;
    CpuProducts::Matrix out;
  };
  Status run(const CpuExperts& experts, const Call& call);

 private:
  /// The rows of one expert among the sorted ones.
  struct Block {
    std::int64_t expert = 0;
    std::int64_t first = 0;
    std::int64_t rows = 0;
  };
  void sort(const CpuExperts& experts, const Call& call);
  Status multiply(const CpuExperts& experts, bool down, std::vector<float>& x,
                  std::vector<float>& y);

  Executor& executor_;
  const kernels::ops::RowKernels& rows_;
  CpuProducts& products_;
  std::vector<Block> blocks_;
  std::vector<std::int64_t> first_row_;      // of each expert
  std::vector<std::int64_t> row_of_choice_;  // choice = token * topk + j; -1 = no expert
  std::vector<std::int64_t> choice_of_row_;  // -1 = a row that pads its block
  std::vector<CpuProducts::Product> list_;
  std::vector<float> input_, hidden_, activated_, output_;
};

}  // namespace attune::model
