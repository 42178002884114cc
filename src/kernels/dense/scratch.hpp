// Sizes of a thread's own memory for one kernel row (layer kernels). Computed once, by the planner;
// kernels find the result in their Params.
#pragma once

#include <cstdint>

#include "attention/packed_latent.hpp"
#include "base/math.hpp"
#include "kernels/dense/params.hpp"
#include "kernels/dense/table.hpp"

namespace attune::kernels::dense {

struct ScratchShape {
  std::int64_t rows = 0;
  std::int64_t head_dim_qk = 0;
  std::int64_t head_dim_vo = 0;
  bool packed_latents = false;
};

[[nodiscard]] inline ScratchLayout scratch_layout(const KernelRow& row, const ScratchShape& shape) {
  constexpr std::int64_t kLine = 64;
  ScratchLayout layout;
  layout.q_stride = base::round_up<std::int64_t>(shape.head_dim_qk, row.numbers_per_operand);
  layout.o_stride = base::round_up<std::int64_t>(shape.head_dim_vo, row.numbers_per_operand);
  const auto take = [&layout](std::int64_t bytes) {
    const std::int64_t at = layout.bytes;
    layout.bytes = at + base::round_up(bytes, kLine);
    return at;
  };
  constexpr std::int64_t kFloat = 4;
  const std::int64_t rows = base::round_up<std::int64_t>(shape.rows, row.row_multiple);
  layout.q = take(rows * layout.q_stride * row.number_bytes);
  layout.o = take(rows * layout.o_stride * kFloat);
  layout.maximum = take(rows * kFloat);
  layout.sum = take(rows * row.lanes * kFloat);
  layout.k = take(row.packed_keys * layout.q_stride * row.number_bytes);
  layout.v = take(row.packed_keys * layout.o_stride * row.number_bytes);
  namespace packed = attention::packed_latent;
  constexpr std::int64_t kBf16 = 2;
  if (shape.packed_latents)
    layout.widened = take(2 * kKeyTile * (packed::kLatents + packed::kRope) * kBf16);
  return layout;
}

}  // namespace attune::kernels::dense
