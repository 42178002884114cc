// Tensors and options of a model's verbs as the kernels of kernels/ops/cuda take them.
#pragma once

#include <attune/tensor.hpp>

#include "kernels/ops/cuda/hyper.hpp"
#include "kernels/ops/cuda/rows.hpp"
#include "kernels/ops/cuda/windows.hpp"
#include "kernels/ops/route.hpp"
#include "model/ops.hpp"

namespace attune::model::cuda {

/// Of [tokens, width] or [tokens, heads, dim].
[[nodiscard]] kernels::ops::cuda::Rows rows_of(const TensorView& v);
/// Of fp32, one row a token.
[[nodiscard]] kernels::ops::cuda::HyperRows f32_rows(const TensorView& v);
[[nodiscard]] kernels::ops::cuda::WindowRows window_rows(const WindowRows& rows);
[[nodiscard]] kernels::ops::cuda::Norm norm_of(const NormParams& p);
[[nodiscard]] kernels::ops::RouteParams route_params(const MoeConfig& moe, const TensorView& logits,
                                                     const float* bias, const TensorView& ids,
                                                     const TensorView& weights);

}  // namespace attune::model::cuda
