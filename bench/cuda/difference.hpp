// How far a kernel's rows are from those of a plain computation.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attune::bench {

struct Difference {
  double o = 0;    ///< root mean square, of o's own; NaN where o has one
  double lse = 0;  ///< the greatest; 1e9 for NaN
};

/// `got(i)` is number i of o; -inf of a row without keys must be -inf. Rows behind those wanted are
/// not looked at.
template <class Want, class Got>
Difference difference_of(const std::vector<Want>& want_o, const std::vector<Want>& want_lse,
                         const Got& got, const std::vector<float>& got_lse) {
  double error = 0, norm = 0, lse_error = 0;
  for (std::size_t i = 0; i < want_o.size(); ++i) {
    const double want = want_o[i];
    const double off = got(i) - want;
    error += off * off;
    norm += want * want;
  }
  for (std::size_t i = 0; i < want_lse.size(); ++i) {
    if (std::isinf(want_lse[i]) && got_lse[i] == want_lse[i]) continue;
    lse_error = std::max<double>(lse_error,
                                 std::isnan(got_lse[i]) ? 1e9 : std::abs(got_lse[i] - want_lse[i]));
  }
  return {.o = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error), .lse = lse_error};
}

template <class Want, class Element>
Difference difference(const std::vector<Want>& want_o, const std::vector<Want>& want_lse,
                      const std::vector<Element>& got_o, const std::vector<float>& got_lse) {
  return difference_of(
      want_o, want_lse, [&](std::size_t i) { return static_cast<float>(got_o[i]); }, got_lse);
}

/// Where `got_o` is the bits of bf16 or of fp16.
inline Difference difference(const std::vector<double>& want_o, const std::vector<double>& want_lse,
                             const std::vector<std::uint16_t>& got_o,
                             const std::vector<float>& got_lse, bool f16) {
  const auto number = [&](std::size_t i) {
    return f16 ? __half2float(__ushort_as_half(got_o[i]))
               : __bfloat162float(__ushort_as_bfloat16(got_o[i]));
  };
  return difference_of(want_o, want_lse, number, got_lse);
}

}  // namespace attune::bench
