// What a model does to one row of activations besides multiplying it (layer kernels). A table of
// routines for each instruction set; `scalar` is the oracle of the others.
//
// Rows are dense. `out` may be an input. The vector tables sum in fp32 over many lanes; their
// exponentials are good to 3e-7 relative, tanh and erf to 2e-7 absolute.
#pragma once

#include <cstdint>

namespace attune::kernels::ops {

enum class RowActivation : std::uint8_t { silu, gelu, gelu_tanh, relu, relu2, swiglu_oai };

/// act(gate) * up for `n` numbers. Element i of gate is gate[i * stride], likewise up.
struct GatedRow {
  RowActivation kind = RowActivation::silu;
  const float* gate = nullptr;
  const float* up = nullptr;
  std::int64_t stride = 1;
  std::int64_t n = 0;
  float limit = 0;  ///< gate ≤ limit, |up| ≤ limit; 0 = none
  float alpha = 1.702f;
  float* out = nullptr;
};

/// weight and bias may be nullptr (ones, zeros); the factor is weight + weight_offset.
struct NormRow {
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float weight_offset = 0;
  float eps = 0;
  std::int64_t n = 0;
  float* out = nullptr;
};

struct RowKernels {
  const char* name;
  void (*rms_norm)(const NormRow& row);
  void (*layer_norm)(const NormRow& row);
  /// Turns pairs (a, b) to (a cos - b sin, b cos + a sin), sin multiplied by `direction`.
  void (*rope)(float* x, const float* cos, const float* sin, std::int64_t pairs, bool interleaved,
               float direction);
  void (*gated)(const GatedRow& row);
  void (*activate)(RowActivation kind, const float* x, std::int64_t n, float* out);
  void (*softmax)(const float* x, std::int64_t n, float* out);
  void (*add_scaled)(const float* x, float scale, std::int64_t n,
                     float* out);  ///< out += scale * x
  void (*scale)(const float* x, float factor, std::int64_t n, float* out);
  void (*multiply)(const float* x, const float* y, std::int64_t n, float* out);
  void (*sigmoid_multiply)(const float* x, const float* gate, std::int64_t n, float* out);
  void (*soft_cap)(const float* x, float cap, std::int64_t n, float* out);
  void (*to_bf16)(const float* x, std::int64_t n, std::uint16_t* out);  ///< to nearest even
  void (*from_bf16)(const std::uint16_t* x, std::int64_t n, float* out);
  void (*to_f16)(const float* x, std::int64_t n, std::uint16_t* out);
  void (*from_f16)(const std::uint16_t* x, std::int64_t n, float* out);
};

extern const RowKernels kScalarRows;
extern const RowKernels kAvx2Rows;
extern const RowKernels kAvx512Rows;

}  // namespace attune::kernels::ops
