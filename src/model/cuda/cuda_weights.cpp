#include "model/cuda/cuda_weights.hpp"

#include <cstddef>
#include <vector>

#include "base/cuda/status.hpp"
#include "base/join.hpp"
#include "model/row_activation.hpp"

namespace attune::model::cuda {

using device::cuda::Memory;
using device::cuda::MemoryKind;

namespace {

/// `parts` stacked, in the device's dtype, and their biases (zeros for a matrix without one).
struct Stacked {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::byte> numbers;
  std::vector<float> bias;  ///< empty: no matrix has one
};

Result<Stacked> stack(std::span<const LinearParts> all, DType dtype) {
  Stacked s;
  bool any_bias = false;
  for (const LinearParts& parts : all) {
    for (const WeightView& w : parts.weights) {
      if (s.columns != 0 && w.columns() != s.columns)
        return invalid_argument(
            base::join("stacked matrices have ", s.columns, " and ", w.columns(), " columns"));
      s.columns = w.columns();
      s.rows += w.rows();
    }
    for (const WeightView& b : parts.biases) any_bias = any_bias || b.defined();
  }
  s.numbers.resize(static_cast<std::size_t>(s.rows * s.columns) * size_of(dtype));
  if (any_bias) s.bias.resize(static_cast<std::size_t>(s.rows));
  std::size_t at = 0;
  std::size_t row = 0;
  for (const LinearParts& parts : all) {
    for (std::size_t i = 0; i < parts.weights.size(); ++i) {
      const WeightView& w = parts.weights[i];
      const auto n = static_cast<std::size_t>(w.num_elements());
      std::byte* out = s.numbers.data() + at * size_of(dtype);
      if (dtype == DType::bf16) {
        read_bf16(w, {reinterpret_cast<std::uint16_t*>(out), n});
      } else {
        read_f32(w, {reinterpret_cast<float*>(out), n});
      }
      if (i < parts.biases.size() && parts.biases[i].defined())
        read_f32(parts.biases[i], {s.bias.data() + row, static_cast<std::size_t>(w.rows())});
      at += n;
      row += static_cast<std::size_t>(w.rows());
    }
  }
  return s;
}

Result<Memory> to_device(const void* data, std::size_t bytes) {
  Result<Memory> memory = Memory::allocate(MemoryKind::device, bytes);
  if (!memory.ok() || bytes == 0) return memory;
  if (Status s = base::cuda::call_status(
          cudaMemcpy(memory->data(), data, bytes, cudaMemcpyHostToDevice), "uploading weights");
      !s.ok())
    return s;
  return memory;
}

}  // namespace

kernels::ops::cuda::Gated gated_of(const ActivationParams& p) {
  return {.kind = row_activation(p.kind),
          .interleaved = p.interleaved,
          .limit = p.limit,
          .alpha = p.alpha};
}

Result<std::unique_ptr<CudaLinear>> CudaLinear::make(std::span<const LinearParts> parts,
                                                     DType dtype) {
  Result<Stacked> s = stack(parts, dtype);
  if (!s.ok()) return s.status();
  Result<Memory> numbers = to_device(s->numbers.data(), s->numbers.size());
  if (!numbers.ok()) return numbers.status();
  Result<Memory> bias = to_device(s->bias.data(), s->bias.size() * sizeof(float));
  if (!bias.ok()) return bias.status();
  auto made = std::make_unique<CudaLinear>();
  made->rows_ = s->rows;
  made->columns_ = s->columns;
  made->numbers_ = std::move(*numbers);
  made->bias_ = std::move(*bias);
  return made;
}

Result<std::unique_ptr<CudaExperts>> CudaExperts::make(const ExpertParts& parts, DType dtype) {
  auto made = std::make_unique<CudaExperts>();
  Result<std::unique_ptr<CudaLinear>> gate_up = CudaLinear::make(parts.gate_up, dtype);
  if (!gate_up.ok()) return gate_up.status();
  Result<std::unique_ptr<CudaLinear>> down = CudaLinear::make(parts.down, dtype);
  if (!down.ok()) return down.status();
  made->gate_up_ = std::move(*gate_up);
  made->down_ = std::move(*down);
  const auto n = static_cast<std::int64_t>(parts.gate_up.size());
  made->weights_ = {.dtype = dtype,
                    .num_experts = static_cast<int>(n),
                    .hidden = made->gate_up_->columns(),
                    .intermediate = made->down_->columns(),
                    .gate_up = made->gate_up_->numbers(),
                    .gate_up_bias = made->gate_up_->bias(),
                    .down = made->down_->numbers(),
                    .down_bias = made->down_->bias(),
                    .activation = gated_of(parts.activation)};
  require(made->gate_up_->rows() == n * 2 * made->weights_.intermediate &&
              made->down_->rows() == n * made->weights_.hidden,
          "every expert has one shape");
  return made;
}

}  // namespace attune::model::cuda
