#include "model/cuda/cuda_views.hpp"

#include <cstddef>

namespace attune::model::cuda {

namespace ops = kernels::ops::cuda;
namespace {

kernels::ops::ExpertScore score_of(RouterScore score) {
  switch (score) {
    case RouterScore::softmax: return kernels::ops::ExpertScore::softmax;
    case RouterScore::sigmoid: return kernels::ops::ExpertScore::sigmoid;
    case RouterScore::sqrt_softplus: return kernels::ops::ExpertScore::sqrt_softplus;
  }
  return kernels::ops::ExpertScore::softmax;
}

}  // namespace

ops::Rows rows_of(const TensorView& v) {
  require(v.rank == 2 || v.rank == 3, "activations are [tokens, width] or [tokens, heads, dim]");
  const auto last = static_cast<std::size_t>(v.rank - 1);
  require(v.stride[last] == 1 || v.shape[last] == 1, "the last stride is 1");
  return {.data = v.data,
          .dtype = v.dtype,
          .tokens = v.shape[0],
          .heads = v.rank == 3 ? v.shape[1] : 1,
          .width = v.shape[last],
          .token_stride = v.stride[0],
          .head_stride = v.rank == 3 ? v.stride[1] : 0};
}

ops::HyperRows f32_rows(const TensorView& v) {
  require(v.rank == 2 && v.dtype == DType::f32 && (v.stride[1] == 1 || v.shape[1] == 1),
          "rows of fp32 numbers");
  return {.data = v.as<float>(), .stride = v.stride[0]};
}

ops::WindowRows window_rows(const WindowRows& rows) {
  const TensorView& rings = rows.rings;
  require(rings.rank == 3 && rings.dtype == DType::f32 && rings.stride[2] == 1 &&
              rings.shape[2] == rows.projected.shape[1],
          "rings of whole rows");
  const ops::HyperRows projected = f32_rows(rows.projected);
  return {.projected = projected.data,
          .projected_stride = projected.stride,
          .rings = rings.as<float>(),
          .slot_stride = rings.stride[0],
          .ring_stride = rings.stride[1],
          .ring = rings.shape[1],
          .width = rings.shape[2],
          .tokens = rows.tokens,
          .num_tokens = rows.projected.shape[0]};
}

ops::Norm norm_of(const NormParams& p) {
  return {.layer_norm = p.kind == NormKind::layer_norm,
          .weight_offset = p.kind == NormKind::rms_plus_one ? 1.0f : 0.0f,
          .eps = p.eps,
          .weight = p.weight,
          .bias = p.bias};
}

kernels::ops::RouteParams route_params(const MoeConfig& moe, const TensorView& logits,
                                       const float* bias, const TensorView& ids,
                                       const TensorView& weights) {
  require(logits.dtype == DType::f32, "router logits are fp32");
  kernels::ops::RouteParams p;
  p.logits = logits.as<float>();
  p.bias = bias;
  p.num_experts = static_cast<int>(logits.shape[1]);
  p.topk = moe.experts_per_token;
  p.score = score_of(moe.score);
  p.softmax_after_topk = moe.softmax_after_topk;
  p.normalize = moe.normalize_topk;
  p.scale = static_cast<float>(moe.routed_scale);
  p.num_groups = moe.num_groups;
  p.topk_groups = moe.topk_groups;
  p.ids = ids.as<std::int32_t>();
  p.weights = weights.as<float>();
  return p;
}

}  // namespace attune::model::cuda
