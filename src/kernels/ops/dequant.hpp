// Stored weights to fp32: one obvious scalar routine a format, the oracle of everything that
// multiplies straight from blocks (layer kernels).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops/weight_type.hpp"

namespace attune::kernels::ops {

/// `count` consecutive numbers from `data` (any alignment); count is a multiple of
/// block_size(type).per_block.
void dequantise(WeightType type, const std::byte* data, std::int64_t count, float* out);

/// The same, rounded once to bf16, to nearest even.
void dequantise_bf16(WeightType type, const std::byte* data, std::int64_t count,
                     std::uint16_t* out);

}  // namespace attune::kernels::ops
