// Products with weights: whole matrices, heads, tables of embeddings, experts.
#include "kernels/ops/dequant.hpp"
#include "kernels/ops/route.hpp"
#include "model/cpu_ops_class.hpp"

namespace attune::model {
namespace {

CpuProducts::Matrix matrix(const TensorView& v) {
  const Rows rows = f32_rows(v);
  require(rows.heads == 1, "a product takes matrices");
  return {.data = rows.f32(0), .num_rows = rows.tokens, .stride = rows.token_stride};
}

/// Head h of [tokens, heads, dim] as a matrix.
TensorView head_of(const TensorView& view, std::size_t h) {
  TensorView head = view;
  head.rank = 2;
  head.data = static_cast<std::byte*>(view.data) +
              static_cast<std::size_t>(view.stride[1]) * h * size_of(view.dtype);
  head.shape = {view.shape[0], view.shape[2], 0, 0};
  head.stride = {view.stride[0], view.stride[2], 0, 0};
  return head;
}

}  // namespace

void CpuOps::linear(const Linear& w, const TensorView& x, const TensorView& y, bool accumulate) {
  if (!failure_.ok()) return;
  require(x.shape[1] == w.columns() && y.shape[1] == w.rows() && x.shape[0] == y.shape[0],
          "x is [tokens, columns], y is [tokens, rows]");
  keep(products_.multiply({.w = &static_cast<const CpuLinear&>(w),
                           .x = matrix(x),
                           .y = matrix(y),
                           .accumulate = accumulate}));
}

void CpuOps::linear_heads(const HeadLinears& w, const TensorView& x, const TensorView& y) {
  const auto& heads = static_cast<const CpuHeadLinears&>(w).heads;
  require(x.rank == 3 && y.rank == 3 && x.shape[1] == static_cast<std::int64_t>(heads.size()) &&
              y.shape[1] == x.shape[1],
          "x and y have the matrices' heads");
  for (std::size_t h = 0; h < heads.size(); ++h)
    linear(*heads[h], head_of(x, h), head_of(y, h), false);
}

void CpuOps::embedding(const Linear& table, const TensorView& ids, float scale,
                       const TensorView& out) {
  const auto& linear = static_cast<const CpuLinear&>(table);
  const std::int32_t* id = indices(ids);
  const Rows to = f32_rows(out);
  require(to.width == linear.columns() && to.tokens == ids.shape[0], "a row of the table each");
  each_row(to, [&](std::int64_t r) {
    require(id[r] >= 0 && id[r] < linear.rows(), "token ids lie inside the table");
    for (const CpuLinear::Segment& s : linear.segments()) {
      const std::int64_t row = id[r] - s.first_row;
      if (row < 0 || row >= s.view.rows()) continue;
      const WeightView view = s.view.row_range(row, 1);
      kernels::ops::dequantise(view.type, view.data, to.width, to.f32(r));
      if (scale != 1.0f) rows_.scale(to.f32(r), scale, to.width, to.f32(r));
    }
  });
}

void CpuOps::route(const MoeConfig& moe, const TensorView& logits, const float* bias,
                   const TensorView& ids, const TensorView& weights) {
  if (!failure_.ok()) return;
  const Rows from = f32_rows(logits);
  const auto num_experts = static_cast<int>(from.width);
  require(num_experts == moe.num_choices(), "a logit for every expert");
  require(ids.shape[1] == moe.experts_per_token && weights.shape[1] == moe.experts_per_token,
          "ids and weights are [tokens, experts_per_token]");
  const auto score = [&] {
    switch (moe.score) {
      case RouterScore::softmax: return kernels::ops::ExpertScore::softmax;
      case RouterScore::sigmoid: return kernels::ops::ExpertScore::sigmoid;
      case RouterScore::sqrt_softplus: return kernels::ops::ExpertScore::sqrt_softplus;
    }
    return kernels::ops::ExpertScore::softmax;
  }();
  route_workspace_.resize(2 * static_cast<std::size_t>(num_experts));
  for (std::int64_t r = 0; r < from.tokens; ++r)
    kernels::ops::route({.logits = from.f32(r),
                         .bias = bias,
                         .num_experts = num_experts,
                         .topk = moe.experts_per_token,
                         .score = score,
                         .softmax_after_topk = moe.softmax_after_topk,
                         .normalize = moe.normalize_topk,
                         .scale = static_cast<float>(moe.routed_scale),
                         .num_groups = moe.num_groups,
                         .topk_groups = moe.topk_groups,
                         .workspace = route_workspace_.data(),
                         .ids = ids.as<std::int32_t>() + r * ids.stride[0],
                         .weights = weights.as<float>() + r * weights.stride[0]});
}

void CpuOps::experts(const Experts& experts, const TensorView& x, const TensorView& ids,
                     const TensorView& weights, bool scale_input, const TensorView& out) {
  if (!failure_.ok()) return;
  require(ids.stride[1] == 1 && weights.stride[1] == 1 && ids.stride[0] == ids.shape[1] &&
              weights.stride[0] == weights.shape[1],
          "ids and weights are dense");
  keep(experts_.run(static_cast<const CpuExperts&>(experts), {.x = matrix(x),
                                                              .ids = indices(ids),
                                                              .weights = weights.as<float>(),
                                                              .topk = ids.shape[1],
                                                              .scale_input = scale_input,
                                                              .out = matrix(out)}));
}

void CpuOps::identity_experts(const TensorView& x, const TensorView& ids, const TensorView& weights,
                              std::int32_t first, const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows to = f32_rows(out);
  require_same(from, to);
  const std::int32_t* id = indices(ids);
  each_row(from, [&](std::int64_t r) {
    float sum = 0.0f;
    for (std::int64_t j = 0; j < ids.shape[1]; ++j)
      if (id[r * ids.stride[0] + j] >= first) sum += weights.as<float>()[r * weights.stride[0] + j];
    if (sum != 0.0f) rows_.add_scaled(from.f32(r), sum, from.width, to.f32(r));
  });
}

}  // namespace attune::model
