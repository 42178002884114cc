// A compressor's windows of tokens, as CPUs and GPUs are told of them (layer kernels;
// model/compressor.hpp says what for).
#pragma once

#include <cstdint>

namespace attune::kernels::ops {

/// A row of a step: whose it is, and which rings it enters.
struct WindowToken {
  std::int32_t position = 0;
  std::int32_t row = 0;           ///< among its request's of this step, which lie side by side
  std::int32_t num_rows = 0;      ///< of the request: those that `draft_state` passes
  std::int32_t known_rows = 0;    ///< … and those that `state` passes; the others are drafts
  std::int32_t state = -1;        ///< slot of the request's ring; -1 = a row of nobody's
  std::int32_t draft_state = -1;  ///< … of the one that passes drafts too, or none
};

/// One kind of pooled key. Of a token's row: `values` and `gates` are where series of `dim` numbers
/// begin, one series, or with `overlap` two: the first for the window after the token's, the second
/// for its own.
struct WindowPool {
  std::int64_t ratio = 1;  ///< tokens of a window
  bool overlap = false;
  std::int64_t dim = 0;
  std::int64_t values = 0;
  std::int64_t gates = 0;
  const float* bias = nullptr;  ///< [ratio, series * dim], device memory: added to gates

  [[nodiscard]] constexpr std::int64_t series() const { return overlap ? 2 : 1; }
};

}  // namespace attune::kernels::ops
