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
  double o = 0;    ///< root mean square, of o's own
  double lse = 0;  ///< the greatest; 1e9 for NaN
};

/// `got_o` is in bf16, or in fp16; -inf of a row without keys must be -inf.
inline Difference difference(const std::vector<double>& want_o, const std::vector<double>& want_lse,
                             const std::vector<std::uint16_t>& got_o,
                             const std::vector<float>& got_lse, bool f16) {
  double error = 0, norm = 0, lse_error = 0;
  for (std::size_t i = 0; i < want_o.size(); ++i) {
    const float g = f16 ? __half2float(__ushort_as_half(got_o[i]))
                        : __bfloat162float(__ushort_as_bfloat16(got_o[i]));
    error += (g - want_o[i]) * (g - want_o[i]);
    norm += want_o[i] * want_o[i];
  }
  for (std::size_t i = 0; i < want_lse.size(); ++i) {
    if (std::isinf(want_lse[i]) && got_lse[i] == want_lse[i]) continue;
    lse_error =
        std::max(lse_error, std::isnan(got_lse[i]) ? 1e9 : std::abs(got_lse[i] - want_lse[i]));
  }
  return {.o = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error), .lse = lse_error};
}

}  // namespace attune::bench
