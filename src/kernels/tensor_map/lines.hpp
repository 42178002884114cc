// Tensors of which no line may be read that was not asked for (layer kernels).
#pragma once

#include "kernels/tensor_map/tensor_map.hpp"

namespace attune::kernels::tensor_map {

/// encode(), whose copies have the second-level cache read pairs of 128-byte lines. Where a row is
/// an odd number of lines and a box one of them, half of the pairs' other lines are read for
/// nothing: 6 % of the memory's rate for rows of 1152 bytes.
[[nodiscard]] Status encode_lines(Encoder encoder, CUtensorMap_st& map, const Tensor& tensor);

}  // namespace attune::kernels::tensor_map
