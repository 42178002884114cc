// Loops the compiler must unroll: register tiles live in arrays indexed by these (layer kernels).
#pragma once

#include <utility>

namespace attune::kernels::simd {

/// f(std::integral_constant<int, 0>), f(<1>), … f(<N - 1>), with no loop left in the code. The
/// symbol's name holds the caller's closure, hence its ISA type.
template <int N, class F>
[[gnu::always_inline]] inline void unroll(F&& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) { (f(std::integral_constant<int, I>{}), ...); }
  (std::make_integer_sequence<int, N>{});
}

}  // namespace attune::kernels::simd
