// Integer arithmetic that everybody needs (layer base).
#pragma once

#include <concepts>

namespace attune::base {

template <std::integral T>
[[nodiscard]] constexpr T ceil_div(T a, T b) {
  return static_cast<T>((a + b - 1) / b);
}

template <std::integral T>
[[nodiscard]] constexpr T round_up(T a, T multiple) {
  return static_cast<T>(ceil_div(a, multiple) * multiple);
}

}  // namespace attune::base
