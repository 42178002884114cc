// Division by a number that is known before a kernel starts.
#pragma once

#include <cstdint>

namespace attune::base {

/// For x / divisor with 0 <= x < 2^31 by multiplication (Granlund and Montgomery, PLDI 1994).
struct FastDivisor {
  std::uint32_t divisor = 1;
  std::uint32_t multiplier = 1u << 31;
  std::uint32_t shift = 31;

  FastDivisor() = default;
  explicit constexpr FastDivisor(std::uint32_t d) : divisor(d) {
    std::uint32_t log2 = 0;
    while ((1u << log2) < d) ++log2;
    shift = 31 + log2;
    multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + d - 1) / d);
  }
};

[[nodiscard]] constexpr std::uint32_t divide(std::uint32_t x, const FastDivisor& d) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(x) * d.multiplier) >> d.shift);
}

}  // namespace attune::base
