// ggml's quantised blocks taken apart (layer kernels): digits, the scales of their groups, and the
// halves that scale those.
//
//   number i of a block = scale(i) * (digits[i] - zero) + min(i)
//   without group scales: scale = d,                    min = m
//   with them:            scale = d * scales[i / group], min = -m * mins[i / group]
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops/weight_type.hpp"

namespace attune::kernels::ops {

inline constexpr int kMaxBlock = 256;

struct BlockForm {
  int digit_bits = 0;         ///< least bits that hold every digit
  int group = 32;             ///< numbers that share a scale: 16 or 32
  bool group_scales = false;  ///< K types: a small integer for each group under one half
  bool has_min = false;
  int zero = 0;
};

/// Only for quantised types.
[[nodiscard]] constexpr BlockForm block_form(WeightType t) {
  switch (t) {
    case WeightType::q4_0: return {.digit_bits = 4, .zero = 8};
    case WeightType::q4_1: return {.digit_bits = 4, .has_min = true};
    case WeightType::q5_0: return {.digit_bits = 5, .zero = 16};
    case WeightType::q5_1: return {.digit_bits = 5, .has_min = true};
    case WeightType::q8_0: return {.digit_bits = 8, .zero = 128};
    case WeightType::q2_k:
      return {.digit_bits = 2, .group = 16, .group_scales = true, .has_min = true};
    case WeightType::q3_k: return {.digit_bits = 3, .group = 16, .group_scales = true, .zero = 4};
    case WeightType::q4_k: return {.digit_bits = 4, .group_scales = true, .has_min = true};
    case WeightType::q5_k: return {.digit_bits = 5, .group_scales = true, .has_min = true};
    case WeightType::q6_k: return {.digit_bits = 6, .group = 16, .group_scales = true, .zero = 32};
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16: break;
  }
  return {};
}

struct QuantBlock {
  std::uint8_t digits[kMaxBlock];
  std::int8_t scales[kMaxBlock / 16];
  std::uint8_t mins[kMaxBlock / 16];
  std::uint16_t d = 0;  ///< fp16
  std::uint16_t m = 0;  ///< fp16
};

/// `block` of block_size(type).bytes_per_block bytes, at any address.
void take_apart(WeightType type, const std::byte* block, QuantBlock& out);

}  // namespace attune::kernels::ops
