#include "model/cpu_experts.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "model/parallel.hpp"

namespace attune::model {

using kernels::ops::RowActivation;

RowActivation row_activation(Activation kind) {
  switch (kind) {
    case Activation::silu: return RowActivation::silu;
    case Activation::gelu: return RowActivation::gelu;
    case Activation::gelu_tanh: return RowActivation::gelu_tanh;
    case Activation::relu: return RowActivation::relu;
    case Activation::relu2: return RowActivation::relu2;
    case Activation::swiglu_oai: return RowActivation::swiglu_oai;
    case Activation::situ: break;
  }
  require(false, "an activation the CPU has");
  return RowActivation::silu;
}

kernels::ops::GatedRow gated_row(const ActivationParams& params, const float* x, std::int64_t width,
                                 float* out) {
  return {.kind = row_activation(params.kind),
          .gate = x,
          .up = params.interleaved ? x + 1 : x + width,
          .stride = params.interleaved ? 2 : 1,
          .n = width,
          .limit = params.limit,
          .alpha = params.alpha,
          .out = out};
}

Result<std::unique_ptr<CpuExperts>> CpuExperts::make(const ExpertParts& parts, CpuWeights form,
                                                     Executor& executor) {
  require(parts.gate_up.size() == parts.down.size(), "every expert has both matrices");
  auto experts = std::make_unique<CpuExperts>();
  experts->activation_ = parts.activation;
  for (std::size_t e = 0; e < parts.gate_up.size(); ++e) {
    auto gate_up = CpuLinear::make(parts.gate_up[e], form, executor);
    if (!gate_up.ok()) return gate_up.status();
    auto down = CpuLinear::make(parts.down[e], form, executor);
    if (!down.ok()) return down.status();
    require((*gate_up)->rows() == 2 * (*down)->columns(), "gate and up as wide as down");
    experts->gate_up_.push_back(std::move(*gate_up));
    experts->down_.push_back(std::move(*down));
  }
  return experts;
}

Status CpuExpertProducts::run(const CpuExperts& experts, const Call& call) {
  const std::int64_t num_experts = experts.num_experts();
  const std::int64_t choices = call.x.num_rows * call.topk;
  if (choices == 0 || num_experts == 0) return {};
  const auto expert_of = [&](std::int64_t slot) -> std::int64_t { return call.ids[slot]; };
  const auto known = [&](std::int64_t e) { return e >= 0 && e < num_experts; };

  first_.assign(static_cast<std::size_t>(num_experts) + 1, 0);
  for (std::int64_t s = 0; s < choices; ++s)
    if (known(expert_of(s))) ++first_[static_cast<std::size_t>(expert_of(s)) + 1];
  for (std::size_t e = 1; e < first_.size(); ++e) first_[e] += first_[e - 1];
  slots_.resize(static_cast<std::size_t>(choices));
  for (std::int64_t s = 0; s < choices; ++s) {
    if (!known(expert_of(s))) continue;
    std::int64_t& next = first_[static_cast<std::size_t>(expert_of(s))];
    slots_[static_cast<std::size_t>(next++)] = s;
  }

  const std::int64_t width = experts.gate_up(0).columns();
  const std::int64_t intermediate = experts.down(0).columns();
  const std::int64_t out_width = experts.down(0).rows();
  // After the placing, first_[e] is where expert e ends and e + 1 begins.
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < num_experts; ++e) {
    const std::int64_t end = first_[static_cast<std::size_t>(e)];
    const std::int64_t n = end - begin;
    const std::int64_t* slot = slots_.data() + begin;
    begin = end;
    if (n == 0) continue;
    const auto room = [n](std::vector<float>& v, std::int64_t columns) {
      v.resize(std::max(v.size(), static_cast<std::size_t>(n * columns)));
      return v.data();
    };
    float* input = room(input_, width);
    float* hidden = room(hidden_, 2 * intermediate);
    float* activated = room(activated_, intermediate);
    float* output = room(output_, out_width);

    for (std::int64_t i = 0; i < n; ++i) {
      const float* x = call.x.data + slot[i] / call.topk * call.x.stride;
      if (call.scale_input) {
        rows_.scale(x, call.weights[slot[i]], width, input + i * width);
      } else {
        std::memcpy(input + i * width, x, static_cast<std::size_t>(width) * sizeof(float));
      }
    }
    const auto matrix = [n](float* data, std::int64_t columns) {
      return CpuProducts::Matrix{.data = data, .num_rows = n, .stride = columns};
    };
    Status status = products_.multiply(experts.gate_up(e), matrix(input, width),
                                       matrix(hidden, 2 * intermediate), false);
    if (!status.ok()) return status;
    for_row_ranges(executor_, n, 2 * intermediate, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t r = first; r < last; ++r)
        rows_.gated(gated_row(experts.activation(), hidden + r * 2 * intermediate, intermediate,
                              activated + r * intermediate));
    });
    status = products_.multiply(experts.down(e), matrix(activated, intermediate),
                                matrix(output, out_width), false);
    if (!status.ok()) return status;
    for (std::int64_t i = 0; i < n; ++i)
      rows_.add_scaled(output + i * out_width, call.scale_input ? 1.0f : call.weights[slot[i]],
                       out_width, call.out.data + slot[i] / call.topk * call.out.stride);
  }
  return {};
}

}  // namespace attune::model
