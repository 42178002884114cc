// What Ops::pool_windows and keep_windows are given: a compressor's projections of a step's tokens, and
// those of earlier tokens, ring by ring (layer model; compressor.hpp says what for).
#pragma once

#include <cstdint>
#include <span>

#include <attune/tensor.hpp>

namespace attune::model {

/// Consecutive rows of a step that are one request's, and where its states are; slots of -1 = none.
struct RequestRows {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::int32_t state = -1;
  /// The last of the rows: `state` stays in front of them, `draft_state` is to pass them too.
  std::int64_t num_drafts = 0;
  std::int32_t draft_state = -1;
};

struct WindowRows {
  TensorView projected{};  ///< fp32 [tokens, width]
  TensorView rings{};      ///< fp32 [slots, ring, width]: row p % ring is that of position p
  std::span<const RequestRows> requests{};    ///< host
  std::span<const std::int32_t> positions{};  ///< [tokens], host
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
};

}  // namespace attune::model
