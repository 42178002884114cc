// A row of queries as whole numbers of two signed digits of base 128 (layer kernels), so that
// products with keys of signed bytes can be summed in 32 bits without any error.
//
// q = value * (128 high + low) with |128 high + low| <= 16319, value = max |q| / 16319: each query
// is good to max |q| / 32638, finer than a bf16 of the row's largest numbers by a factor of 64. One
// digit would be off by max |q| / 254, which moves logits by up to a few hundredths
// (docs/performance/cpu.md). Sums of up to 1024 products stay below 2^31.
#pragma once

#include <cstdint>
#include <cstring>

namespace attune::kernels::tile {

/// Head dims beyond it would overflow the sums.
inline constexpr int kMaxDigitDims = 1024;

template <class Unit>
struct Digits {
  using V = typename Unit::V;
  using Number = typename Unit::Number;
  static constexpr int kStep = 64;  ///< bytes of a row of a tile: numbers one product sums over
  static constexpr int kBase = 128;
  static constexpr float kLargest = 127.0f * kBase + 63.0f;

  /// `count` numbers of bf16, a multiple of kStep, become their digits: 64 high ones, 64 low ones,
  /// and so on. Returns the value of one unit; NaN where a number is not finite.
  static float split_in_place(Number* row, std::int64_t count) {
    const float value = value_of(row, count);
    for (std::int64_t i = 0; i < count; i += kStep) {
      std::int8_t digits[2][kStep];
      split_step(row + i, value, digits[0], digits[1]);
      std::memcpy(row + i, digits, sizeof digits);
    }
    return value;
  }

  /// The same into two rows of bytes.
  static float split(const Number* row, std::int64_t count, char* high, char* low) {
    const float value = value_of(row, count);
    for (std::int64_t i = 0; i < count; i += kStep) {
      std::int8_t digits[2][kStep];
      split_step(row + i, value, digits[0], digits[1]);
      std::memcpy(high + i, digits[0], kStep);
      std::memcpy(low + i, digits[1], kStep);
    }
    return value;
  }

  /// Sums of both digits' products, 32-bit integers in the place of floats, become scores in the
  /// place of the high ones.
  template <int kCount>
  [[gnu::always_inline]] static void join(float* high, const float* low, float value) {
    const auto times = V::set(value);
    for (int i = 0; i < kCount; i += V::kLanes)
      V::store(high + i, V::mul(V::join_digits(high + i, low + i), times));
  }

 private:
  static float value_of(const Number* row, std::int64_t count) {
    // Without its sign a bf16 is ordered as an integer is.
    unsigned largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const unsigned magnitude = row[i] & 0x7fffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    constexpr unsigned kInfinity = 0x7f80;
    if (largest >= kInfinity) return __builtin_nanf("");
    return number_of(largest) / kLargest;
  }

  static void split_step(const Number* row, float value, std::int8_t* high, std::int8_t* low) {
    // Below it the inverse is infinite; queries as small as that count as zeros.
    constexpr float kLeast = 1e-37f;
    const float inverse = value > kLeast ? 1.0f / value : 0.0f;
    for (int i = 0; i < kStep; ++i) {
      const float x = number_of(row[i]) * inverse;
      // The largest may come out a little beyond kLargest. NaN is within, too.
      const float positive = x < kLargest ? x : kLargest;
      const float bounded = positive > -kLargest ? positive : -kLargest;
      const int n = static_cast<int>(bounded + (bounded < 0.0f ? -0.5f : 0.5f));
      const int digit = (n + kBase / 2) >> 7;
      high[i] = static_cast<std::int8_t>(digit);
      low[i] = static_cast<std::int8_t>(n - digit * kBase);
    }
  }

  static float number_of(unsigned bf16) {
    const std::uint32_t bits = static_cast<std::uint32_t>(bf16) << 16;
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
  }
};

}  // namespace attune::kernels::tile
