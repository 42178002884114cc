#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ops/rows.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::kernels::ops {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float activated(RowActivation kind, float x, float alpha) {
  constexpr float kSqrtHalf = 0.70710678118654752f;
  constexpr float kSqrtTwoOverPi = 0.79788456080286536f;
  switch (kind) {
    case RowActivation::silu: return x * sigmoid(x);
    case RowActivation::gelu: return 0.5f * x * (1.0f + std::erf(x * kSqrtHalf));
    case RowActivation::gelu_tanh:
      return 0.5f * x * (1.0f + std::tanh(kSqrtTwoOverPi * (x + 0.044715f * x * x * x)));
    case RowActivation::relu: return std::max(x, 0.0f);
    case RowActivation::relu2: return std::max(x, 0.0f) * std::max(x, 0.0f);
    case RowActivation::swiglu_oai: return x * sigmoid(alpha * x);
  }
  return x;
}

void rms_norm(const NormRow& row) {
  double squares = 0;
  for (std::int64_t i = 0; i < row.n; ++i) squares += static_cast<double>(row.x[i]) * row.x[i];
  const auto mean = static_cast<float>(squares / static_cast<double>(row.n));
  const float factor = 1.0f / std::sqrt(mean + row.eps);
  for (std::int64_t i = 0; i < row.n; ++i) {
    const float weight = row.weight == nullptr ? 1.0f : row.weight[i] + row.weight_offset;
    row.out[i] = row.x[i] * factor * weight;
  }
}

void layer_norm(const NormRow& row) {
  double sum = 0;
  for (std::int64_t i = 0; i < row.n; ++i) sum += row.x[i];
  const double mean = sum / static_cast<double>(row.n);
  double squares = 0;
  for (std::int64_t i = 0; i < row.n; ++i) squares += (row.x[i] - mean) * (row.x[i] - mean);
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(row.n) + row.eps);
  for (std::int64_t i = 0; i < row.n; ++i) {
    const float weight = row.weight == nullptr ? 1.0f : row.weight[i] + row.weight_offset;
    const float bias = row.bias == nullptr ? 0.0f : row.bias[i];
    row.out[i] = static_cast<float>((row.x[i] - mean) * factor) * weight + bias;
  }
}

void rope(float* x, const float* cos, const float* sin, std::int64_t pairs, bool interleaved,
          float direction) {
  const std::int64_t step = interleaved ? 2 : 1;
  const std::int64_t partner = interleaved ? 1 : pairs;
  for (std::int64_t i = 0; i < pairs; ++i) {
    float& first = x[i * step];
    float& second = x[i * step + partner];
    const float a = first;
    const float b = second;
    const float s = sin[i] * direction;
    first = a * cos[i] - b * s;
    second = b * cos[i] + a * s;
  }
}

void gated(const GatedRow& row) {
  for (std::int64_t i = 0; i < row.n; ++i) {
    float gate = row.gate[i * row.stride];
    float up = row.up[i * row.stride];
    if (row.limit > 0) {
      gate = std::min(gate, row.limit);
      up = std::clamp(up, -row.limit, row.limit);
    }
    if (row.kind == RowActivation::swiglu_oai) up += 1.0f;
    row.out[i] = activated(row.kind, gate, row.alpha) * up;
  }
}

void activate(RowActivation kind, const float* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = activated(kind, x[i], 1.702f);
}

void softmax(const float* x, std::int64_t n, float* out) {
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, x[i]);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = std::exp(x[i] - largest);
    sum += out[i];
  }
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(out[i] / sum);
}

void add_scaled(const float* x, float scale, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] += scale * x[i];
}

void scale(const float* x, float factor, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = factor * x[i];
}

void multiply(const float* x, const float* y, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * y[i];
}

void sigmoid_multiply(const float* x, const float* gate, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * sigmoid(gate[i]);
}

void soft_cap(const float* x, float cap, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = cap * std::tanh(x[i] / cap);
}

void to_bf16(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = tensor::to_bf16(x[i]).bits;
}

void from_bf16(const std::uint16_t* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = tensor::to_float(tensor::Bf16{x[i]});
}

void to_f16(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = tensor::round_to<tensor::F16>(x[i]).bits;
}

void from_f16(const std::uint16_t* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = tensor::to_float(tensor::F16{x[i]});
}

}  // namespace

constinit const RowKernels kScalarRows{.name = "scalar",
                                       .rms_norm = rms_norm,
                                       .layer_norm = layer_norm,
                                       .rope = rope,
                                       .gated = gated,
                                       .activate = activate,
                                       .softmax = softmax,
                                       .add_scaled = add_scaled,
                                       .scale = scale,
                                       .multiply = multiply,
                                       .sigmoid_multiply = sigmoid_multiply,
                                       .soft_cap = soft_cap,
                                       .to_bf16 = to_bf16,
                                       .from_bf16 = from_bf16,
                                       .to_f16 = to_f16,
                                       .from_f16 = from_f16};

}  // namespace attune::kernels::ops
