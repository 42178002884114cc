// The narrow floating-point formats, scalar and exact (layer tensor).
//
// Conversions out are exact; conversions in round once, to nearest even, from double (a float
// converts to double exactly, so one routine serves both and nothing rounds twice). bf16, f16 and
// e5m2 overflow to infinity as IEEE 754 does; e4m3 has no infinity and saturates at ±448, infinite
// inputs included. NaN stays NaN.
//
// Inside an ISA file these inline functions become weak symbols: kernels convert with their SIMD
// verbs and leave this header to scalar code.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace attune::tensor {

struct Bf16 {
  std::uint16_t bits = 0;
};
struct F16 {
  std::uint16_t bits = 0;
};
struct E4m3 {
  std::uint8_t bits = 0;
};
struct E5m2 {
  std::uint8_t bits = 0;
};

namespace detail {

/// Shape of one format. `max_finite` and `nan` are codes without the sign bit.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  std::uint32_t max_finite;
  std::uint32_t overflow;  ///< what a magnitude beyond max_finite becomes
  std::uint32_t nan;

  [[nodiscard]] constexpr int sign_shift() const { return exponent_bits + mantissa_bits; }
};

template <class T>
struct FormatOf;
template <>
struct FormatOf<Bf16> {
  static constexpr FloatFormat value{8, 7, 127, 0x7f7f, 0x7f80, 0x7fc0};
};
template <>
struct FormatOf<F16> {
  static constexpr FloatFormat value{5, 10, 15, 0x7bff, 0x7c00, 0x7e00};
};
template <>
struct FormatOf<E4m3> {
  static constexpr FloatFormat value{4, 3, 7, 0x7e, 0x7e, 0x7f};
};
template <>
struct FormatOf<E5m2> {
  static constexpr FloatFormat value{5, 2, 15, 0x7b, 0x7c, 0x7e};
};

[[nodiscard]] constexpr std::uint32_t encode(const FloatFormat& f, double x) {
  constexpr int kDoubleMantissa = 52;
  constexpr int kDoubleBias = 1023;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  const auto sign = static_cast<std::uint32_t>(bits >> 63) << f.sign_shift();
  if (x != x) return sign | f.nan;

  const int exponent = static_cast<int>(magnitude >> kDoubleMantissa) - kDoubleBias;
  const int least = 1 - f.bias;  // exponent of the smallest normal number
  const int held = std::max(exponent, least);
  // Bits below the last kept one; subnormal results drop more. Beyond 53 all is under half a step.
  const int drop = kDoubleMantissa - f.mantissa_bits + (held - exponent);
  if (drop > kDoubleMantissa + 1) return sign;
  constexpr std::uint64_t kHidden = std::uint64_t{1} << kDoubleMantissa;
  const std::uint64_t mantissa = (magnitude & (kHidden - 1)) | kHidden;
  std::uint64_t kept = mantissa >> drop;
  const std::uint64_t rest = mantissa & ((std::uint64_t{1} << drop) - 1);
  const std::uint64_t half = std::uint64_t{1} << (drop - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;

  // `kept` carries the hidden bit, which is one step of the exponent field; a carry out of the
  // mantissa moves to the next exponent by itself.
  const std::uint64_t code = (static_cast<std::uint64_t>(held - least) << f.mantissa_bits) + kept;
  return sign | (code > f.max_finite ? f.overflow : static_cast<std::uint32_t>(code));
}

[[nodiscard]] constexpr float decode(const FloatFormat& f, std::uint32_t code) {
  const bool negative = (code >> f.sign_shift()) != 0;
  const std::uint32_t magnitude = code & ((1u << f.sign_shift()) - 1);
  const float sign = negative ? -1.0f : 1.0f;
  if (magnitude > f.max_finite) {
    if (magnitude == f.overflow) return sign * std::numeric_limits<float>::infinity();
    return std::numeric_limits<float>::quiet_NaN();
  }
  const auto exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const auto mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  const auto power = [](int e) { return std::bit_cast<float>((e + 127) << 23); };
  const int steps = std::max(exponent, 1) - f.bias - f.mantissa_bits;
  const auto digits =
      static_cast<float>(exponent == 0 ? mantissa : mantissa + (1u << f.mantissa_bits));
  return sign * digits * power(steps);
}

}  // namespace detail

[[nodiscard]] constexpr float to_float(float x) { return x; }
[[nodiscard]] constexpr float to_float(std::int8_t x) { return static_cast<float>(x); }
[[nodiscard]] constexpr float to_float(Bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
[[nodiscard]] constexpr float to_float(F16 x) {
  return detail::decode(detail::FormatOf<F16>::value, x.bits);
}
[[nodiscard]] constexpr float to_float(E4m3 x) {
  return detail::decode(detail::FormatOf<E4m3>::value, x.bits);
}
[[nodiscard]] constexpr float to_float(E5m2 x) {
  return detail::decode(detail::FormatOf<E5m2>::value, x.bits);
}

/// Rounds once, to nearest even.
template <class T>
[[nodiscard]] constexpr T round_to(double x) {
  return T{static_cast<decltype(T::bits)>(detail::encode(detail::FormatOf<T>::value, x))};
}
template <>
[[nodiscard]] constexpr float round_to<float>(double x) {
  return static_cast<float>(x);
}
template <>
[[nodiscard]] constexpr double round_to<double>(double x) {
  return x;
}
/// Symmetric: -128 is never produced, so that negation is exact. NaN becomes 0.
template <>
[[nodiscard]] constexpr std::int8_t round_to<std::int8_t>(double x) {
  if (x != x) return 0;
  const double limited = std::clamp(x, -127.0, 127.0);
  const double magnitude = limited < 0 ? -limited : limited;
  auto whole = static_cast<int>(magnitude);
  const double rest = magnitude - whole;
  if (rest > 0.5 || (rest == 0.5 && whole % 2 == 1)) ++whole;
  return static_cast<std::int8_t>(limited < 0 ? -whole : whole);
}

/// The short way for the common case; equal to round_to<Bf16> for every float but NaN payloads.
[[nodiscard]] constexpr Bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return Bf16{static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return Bf16{static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace attune::tensor
