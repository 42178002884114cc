// How the numbers of a weight lie in its file (layer kernels): plain floats, or ggml's blocks.
// Blocks run along a row; a row is a whole number of blocks.
#pragma once

#include <cstdint>
#include <string_view>

namespace attune::kernels::ops {

enum class WeightType : std::uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
};

/// A row of n numbers takes n / per_block blocks of bytes_per_block bytes.
struct BlockSize {
  std::int64_t per_block = 1;
  std::int64_t bytes_per_block = 0;
};

[[nodiscard]] constexpr BlockSize block_size(WeightType t) {
  switch (t) {
    case WeightType::f32: return {1, 4};
    case WeightType::f16:
    case WeightType::bf16: return {1, 2};
    case WeightType::q4_0: return {32, 18};
    case WeightType::q4_1: return {32, 20};
    case WeightType::q5_0: return {32, 22};
    case WeightType::q5_1: return {32, 24};
    case WeightType::q8_0: return {32, 34};
    case WeightType::q2_k: return {256, 84};
    case WeightType::q3_k: return {256, 110};
    case WeightType::q4_k: return {256, 144};
    case WeightType::q5_k: return {256, 176};
    case WeightType::q6_k: return {256, 210};
  }
  return {};
}

[[nodiscard]] constexpr std::string_view name(WeightType t) {
  switch (t) {
    case WeightType::f32: return "F32";
    case WeightType::f16: return "F16";
    case WeightType::bf16: return "BF16";
    case WeightType::q4_0: return "Q4_0";
    case WeightType::q4_1: return "Q4_1";
    case WeightType::q5_0: return "Q5_0";
    case WeightType::q5_1: return "Q5_1";
    case WeightType::q8_0: return "Q8_0";
    case WeightType::q2_k: return "Q2_K";
    case WeightType::q3_k: return "Q3_K";
    case WeightType::q4_k: return "Q4_K";
    case WeightType::q5_k: return "Q5_K";
    case WeightType::q6_k: return "Q6_K";
  }
  return "?";
}

[[nodiscard]] constexpr bool is_quantised(WeightType t) { return t > WeightType::bf16; }

/// Bytes of one row of `columns` numbers; columns must be a multiple of per_block.
[[nodiscard]] constexpr std::int64_t row_bytes(WeightType t, std::int64_t columns) {
  const BlockSize b = block_size(t);
  return columns / b.per_block * b.bytes_per_block;
}

}  // namespace attune::kernels::ops
