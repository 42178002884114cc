#include "model/cpu_ops.hpp"

#include <string>
#include <utility>

#include "device/host_memory.hpp"
#include "kernels/ops/dequant.hpp"
#include "model/cpu_ops_class.hpp"

namespace attune::model {

Result<Buffer> CpuOps::allocate(std::size_t bytes) {
  device::HostBytes memory = device::host_bytes(bytes);
  if (!memory)
    return Status(StatusCode::out_of_memory,
                  "no memory for " + std::to_string(bytes) + " bytes of activations or weights");
  return Buffer(this, memory.release(), bytes);
}

Result<std::unique_ptr<Linear>> CpuOps::make_linear(const LinearParts& parts) {
  auto linear = CpuLinear::make(parts, conversion());
  if (!linear.ok()) return linear.status();
  return std::unique_ptr<Linear>(std::move(*linear));
}

Result<std::unique_ptr<HeadLinears>> CpuOps::make_head_linears(std::span<const WeightView> heads) {
  auto made = std::make_unique<CpuHeadLinears>();
  for (const WeightView& head : heads) {
    Result<std::unique_ptr<Linear>> linear = make_linear({.weights = std::span(&head, 1)});
    if (!linear.ok()) return linear.status();
    made->heads.push_back(std::move(*linear));
  }
  return std::unique_ptr<HeadLinears>(std::move(made));
}

Result<std::unique_ptr<Experts>> CpuOps::make_experts(const ExpertParts& parts) {
  auto experts = CpuExperts::make(parts, conversion());
  if (!experts.ok()) return experts.status();
  return std::unique_ptr<Experts>(std::move(*experts));
}

Result<Buffer> CpuOps::make_f32(const WeightView& weight, float scale, float offset) {
  const std::int64_t n = weight.num_elements();
  Result<Buffer> buffer = allocate(static_cast<std::size_t>(n) * sizeof(float));
  if (!buffer.ok()) return buffer;
  auto* out = static_cast<float*>(buffer->data());
  kernels::ops::dequantise(weight.type, weight.data, n, out);
  if (scale != 1.0f || offset != 0.0f)
    for (std::int64_t i = 0; i < n; ++i) out[i] = out[i] * scale + offset;
  return buffer;
}

Result<std::unique_ptr<Ops>> make_cpu_ops(Executor& executor, const CpuOpsOptions& options) {
  return std::unique_ptr<Ops>(std::make_unique<CpuOps>(executor, options));
}

}  // namespace attune::model
