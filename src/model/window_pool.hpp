// What Ops::pool_windows and keep_windows are given: a compressor's projections of a step's tokens, and
// those of earlier tokens, ring by ring (layer model; compressor.hpp says what for).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/tensor.hpp>

#include "kernels/ops/windows.hpp"

namespace attune::model {

using kernels::ops::WindowPool;
using kernels::ops::WindowToken;

/// Consecutive rows of a step that are one request's, and where its states are; slots of -1 = none.
struct RequestRows {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::int32_t state = -1;
  /// The last of the rows: `state` stays in front of them, `draft_state` is to pass them too.
  std::int64_t num_drafts = 0;
  std::int32_t draft_state = -1;
};

/// By row of a step whose tokens have these positions; replaces `tokens`.
void list_window_tokens(std::span<const RequestRows> requests,
                        std::span<const std::int32_t> positions, std::vector<WindowToken>& tokens);

struct WindowRows {
  TensorView projected{};               ///< fp32 [tokens, width]
  TensorView rings{};                   ///< fp32 [slots, ring, width]: row p % ring is position p's
  const WindowToken* tokens = nullptr;  ///< [tokens], device memory
};

}  // namespace attune::model
