#include "model/cpu_ops.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/lse.hpp"
#include "device/host_memory.hpp"
#include "kernels/ops/dequant.hpp"
#include "kernels/ops/route.hpp"
#include "kernels/ops/rows.hpp"
#include "model/cpu_experts.hpp"
#include "model/cpu_kernels.hpp"
#include "model/cpu_linear.hpp"
#include "model/cpu_products.hpp"
#include "model/parallel.hpp"
#include "model/row_activation.hpp"

namespace attune::model {
namespace {

using kernels::ops::GatedRow;
using kernels::ops::NormRow;
using kernels::ops::RowActivation;
using kernels::ops::RowKernels;

/// A view seen as rows of numbers: [tokens, width], or [tokens, heads, width].
struct Rows {
  std::byte* data = nullptr;
  std::int64_t tokens = 0;
  std::int64_t heads = 1;
  std::int64_t width = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t element = 4;

  [[nodiscard]] std::int64_t count() const { return tokens * heads; }
  [[nodiscard]] std::byte* at(std::int64_t row) const {
    const std::int64_t offset = row / heads * token_stride + row % heads * head_stride;
    return data + offset * element;
  }
  [[nodiscard]] float* f32(std::int64_t row) const { return reinterpret_cast<float*>(at(row)); }
};

Rows any_rows(const TensorView& v) {
  require(v.rank == 2 || v.rank == 3, "activations are [tokens, width] or [tokens, heads, dim]");
  require(v.stride[static_cast<std::size_t>(v.rank - 1)] == 1, "the last stride is 1");
  Rows rows{.data = static_cast<std::byte*>(v.data),
            .tokens = v.shape[0],
            .heads = v.rank == 3 ? v.shape[1] : 1,
            .width = v.shape[static_cast<std::size_t>(v.rank - 1)],
            .token_stride = v.stride[0],
            .head_stride = v.rank == 3 ? v.stride[1] : 0,
            .element = static_cast<std::int64_t>(size_of(v.dtype))};
  return rows;
}

Rows f32_rows(const TensorView& v) {
  require(v.dtype == DType::f32, "activations on the CPU are fp32");
  return any_rows(v);
}

void require_same(const Rows& a, const Rows& b) {
  require(a.count() == b.count() && a.width == b.width, "in and out have one shape");
}

CpuProducts::Matrix matrix(const TensorView& v) {
  const Rows rows = f32_rows(v);
  require(rows.heads == 1, "a product takes matrices");
  return {.data = rows.f32(0), .num_rows = rows.tokens, .stride = rows.token_stride};
}

const std::int32_t* indices(const TensorView& v) {
  require(v.dtype == DType::i32 && v.rank >= 1, "indices are i32");
  return v.as<std::int32_t>();
}

struct CpuHeadLinears final : HeadLinears {
  std::vector<std::unique_ptr<Linear>> heads;
};

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

class CpuOps final : public Ops {
 public:
  CpuOps(Executor& executor, const CpuOpsOptions& options)
      : executor_(executor),
        options_(options),
        kernels_(choose_cpu_kernels(options.isa)),
        rows_(*kernels_.rows),
        products_(executor, kernels_, options.batch_invariant),
        experts_(executor, rows_, products_) {}

  [[nodiscard]] DeviceKind device() const override { return DeviceKind::cpu; }
  [[nodiscard]] DType activation_dtype() const override { return DType::f32; }
  [[nodiscard]] DType product_dtype() const override { return DType::f32; }

  Result<Buffer> allocate(std::size_t bytes) override;
  void release(void* data, std::size_t) override { std::free(data); }
  void upload(void* device, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  Status download(void* host, const void* device, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
    return synchronize();
  }
  Status synchronize() override { return std::exchange(failure_, Status{}); }
  [[nodiscard]] Stream stream() const override { return {}; }

  Result<std::unique_ptr<Linear>> make_linear(const LinearParts& parts) override;
  Result<std::unique_ptr<HeadLinears>> make_head_linears(
      std::span<const WeightView> heads) override;
  Result<std::unique_ptr<Experts>> make_experts(const ExpertParts& parts) override;
  Result<Buffer> make_f32(const WeightView& weight, float scale, float offset) override;

  void linear(const Linear& w, const TensorView& x, const TensorView& y, bool accumulate) override;
  void linear_heads(const HeadLinears& w, const TensorView& x, const TensorView& y) override;
  void embedding(const Linear& table, const TensorView& ids, float scale,
                 const TensorView& out) override;
  void route(const MoeConfig& moe, const TensorView& logits, const float* bias,
             const TensorView& ids, const TensorView& weights) override;
  void experts(const Experts& experts, const TensorView& x, const TensorView& ids,
               const TensorView& weights, bool scale_input, const TensorView& out) override;

  void identity_experts(const TensorView& x, const TensorView& ids, const TensorView& weights,
                        std::int32_t first, const TensorView& out) override;

  void norm(const TensorView& x, const NormParams& params, const TensorView& out) override;
  void add_norm(const TensorView& x, float scale, const TensorView& residual,
                const NormParams& params, const TensorView& out) override;
  void rope_angles(const TensorView& positions, const float* inv_freq, std::int64_t pairs,
                   float factor, const TensorView& cos_sin) override;
  void rope(const TensorView& x, const TensorView& cos_sin, std::int64_t first, bool interleaved,
            bool inverse) override;
  void gated_activation(const TensorView& x, const ActivationParams& params,
                        const TensorView& out) override;
  void softmax(const TensorView& x, const TensorView& out) override;
  void merge_attention(const TensorView& o, const TensorView& lse, const TensorView& more_o,
                       const TensorView& more_lse) override;

  void activation(const TensorView& x, Activation kind, const TensorView& out) override;
  void add(const TensorView& x, float scale, const TensorView& out) override;
  void scale(const TensorView& x, float factor, const TensorView& out) override;
  void sigmoid_gate(const TensorView& x, const TensorView& gate, const TensorView& out) override;
  void multiply(const TensorView& x, const TensorView& y, const TensorView& out) override;
  void soft_cap(const TensorView& x, float cap, const TensorView& out) override;

  void convert(const TensorView& x, const TensorView& out) override;
  void gather_rows(const TensorView& x, const TensorView& rows, const TensorView& out) override;
  void choose(const TensorView& logits, const Choice* choices, const TensorView& ids) override;

 private:
  void keep(Status status) {
    if (!status.ok() && failure_.ok()) failure_ = std::move(status);
  }
  /// body(row) for every row, on the executor's threads.
  template <class Body>
  void each_row(const Rows& rows, Body&& body) {
    if (!failure_.ok()) return;
    for_row_ranges(executor_, rows.count(), rows.width,
                   [&](std::int64_t first, std::int64_t last, int) {
                     for (std::int64_t r = first; r < last; ++r) body(r);
                   });
  }
  [[nodiscard]] Conversion conversion() {
    return {options_.weights, executor_, arena_, options_.converted};
  }
  void norm_row(const float* x, const NormParams& params, std::int64_t width, float* out) const;

  Executor& executor_;
  CpuOpsOptions options_;
  CpuKernels kernels_;
  const RowKernels& rows_;
  WeightArena arena_;
  CpuProducts products_;
  CpuExpertProducts experts_;
  std::vector<float> route_workspace_;
  Status failure_;
};

Result<Buffer> CpuOps::allocate(std::size_t bytes) {
  device::HostBytes memory = device::host_bytes(bytes);
  if (!memory)
    return Status(StatusCode::out_of_memory,
                  "no memory for " + std::to_string(bytes) + " bytes of activations or weights");
  return Buffer(this, memory.release(), bytes);
}

Result<std::unique_ptr<Linear>> CpuOps::make_linear(const LinearParts& parts) {
  auto linear = CpuLinear::make(parts, conversion());
  if (!linear.ok()) return linear.status();
  return std::unique_ptr<Linear>(std::move(*linear));
}

Result<std::unique_ptr<HeadLinears>> CpuOps::make_head_linears(std::span<const WeightView> heads) {
  auto made = std::make_unique<CpuHeadLinears>();
  for (const WeightView& head : heads) {
    Result<std::unique_ptr<Linear>> linear = make_linear({.weights = std::span(&head, 1)});
    if (!linear.ok()) return linear.status();
    made->heads.push_back(std::move(*linear));
  }
  return std::unique_ptr<HeadLinears>(std::move(made));
}

Result<std::unique_ptr<Experts>> CpuOps::make_experts(const ExpertParts& parts) {
  auto experts = CpuExperts::make(parts, conversion());
  if (!experts.ok()) return experts.status();
  return std::unique_ptr<Experts>(std::move(*experts));
}

Result<Buffer> CpuOps::make_f32(const WeightView& weight, float scale, float offset) {
  const std::int64_t n = weight.num_elements();
  Result<Buffer> buffer = allocate(static_cast<std::size_t>(n) * sizeof(float));
  if (!buffer.ok()) return buffer;
  auto* out = static_cast<float*>(buffer->data());
  kernels::ops::dequantise(weight.type, weight.data, n, out);
  if (scale != 1.0f || offset != 0.0f)
    for (std::int64_t i = 0; i < n; ++i) out[i] = out[i] * scale + offset;
  return buffer;
}

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

void CpuOps::norm_row(const float* x, const NormParams& params, std::int64_t width,
                      float* out) const {
  const NormRow row{.x = x,
                    .weight = params.weight,
                    .bias = params.bias,
                    .weight_offset = params.kind == NormKind::rms_plus_one ? 1.0f : 0.0f,
                    .eps = params.eps,
                    .n = width,
                    .out = out};
  if (params.kind == NormKind::layer_norm) {
    rows_.layer_norm(row);
  } else {
    rows_.rms_norm(row);
  }
}

void CpuOps::norm(const TensorView& x, const NormParams& params, const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows to = f32_rows(out);
  require_same(from, to);
  each_row(from, [&](std::int64_t r) { norm_row(from.f32(r), params, from.width, to.f32(r)); });
}

void CpuOps::add_norm(const TensorView& x, float scale, const TensorView& residual,
                      const NormParams& params, const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows sum = f32_rows(residual);
  const Rows to = f32_rows(out);
  require_same(from, sum);
  require_same(from, to);
  each_row(from, [&](std::int64_t r) {
    rows_.add_scaled(from.f32(r), scale, from.width, sum.f32(r));
    norm_row(sum.f32(r), params, from.width, to.f32(r));
  });
}

void CpuOps::rope_angles(const TensorView& positions, const float* inv_freq, std::int64_t pairs,
                         float factor, const TensorView& cos_sin) {
  const std::int32_t* position = indices(positions);
  const Rows to = f32_rows(cos_sin);
  require(to.width == 2 * pairs && to.tokens == positions.shape[0], "cos_sin is [tokens, 2 pairs]");
  each_row(to, [&](std::int64_t r) {
    float* cos = to.f32(r);
    float* sin = cos + pairs;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const float angle = static_cast<float>(position[r]) * inv_freq[i];
      cos[i] = std::cos(angle) * factor;
      sin[i] = std::sin(angle) * factor;
    }
  });
}

void CpuOps::rope(const TensorView& x, const TensorView& cos_sin, std::int64_t first,
                  bool interleaved, bool inverse) {
  const Rows rows = f32_rows(x);
  const Rows angles = f32_rows(cos_sin);
  const std::int64_t pairs = angles.width / 2;
  require(angles.tokens == rows.tokens && first >= 0 && first + 2 * pairs <= rows.width,
          "the turned dims lie inside a head");
  each_row(rows, [&](std::int64_t r) {
    const float* cos = angles.f32(r / rows.heads);
    rows_.rope(rows.f32(r) + first, cos, cos + pairs, pairs, interleaved, inverse ? -1.0f : 1.0f);
  });
}

void CpuOps::gated_activation(const TensorView& x, const ActivationParams& params,
                              const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows to = f32_rows(out);
  require(from.count() == to.count() && from.width == 2 * to.width, "x holds gate and up");
  each_row(to, [&](std::int64_t r) {
    rows_.gated(gated_row(params, from.f32(r), to.width, to.f32(r)));
  });
}

void CpuOps::softmax(const TensorView& x, const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows to = f32_rows(out);
  require_same(from, to);
  each_row(from, [&](std::int64_t r) { rows_.softmax(from.f32(r), from.width, to.f32(r)); });
}

void CpuOps::activation(const TensorView& x, Activation kind, const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows to = f32_rows(out);
  require_same(from, to);
  const RowActivation row_kind = row_activation(kind);
  each_row(from,
           [&](std::int64_t r) { rows_.activate(row_kind, from.f32(r), from.width, to.f32(r)); });
}

void CpuOps::add(const TensorView& x, float scale, const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows to = f32_rows(out);
  require_same(from, to);
  each_row(from,
           [&](std::int64_t r) { rows_.add_scaled(from.f32(r), scale, from.width, to.f32(r)); });
}

void CpuOps::scale(const TensorView& x, float factor, const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows to = f32_rows(out);
  require_same(from, to);
  each_row(from, [&](std::int64_t r) { rows_.scale(from.f32(r), factor, from.width, to.f32(r)); });
}

void CpuOps::sigmoid_gate(const TensorView& x, const TensorView& gate, const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows gates = f32_rows(gate);
  const Rows to = f32_rows(out);
  require_same(from, to);
  const bool one_gate = gates.width == 1 && from.width != 1;
  require(gates.count() == from.count() && (one_gate || gates.width == from.width),
          "a gate for every number or for every row");
  each_row(from, [&](std::int64_t r) {
    if (one_gate) {
      const float factor = 1.0f / (1.0f + std::exp(-gates.f32(r)[0]));
      rows_.scale(from.f32(r), factor, from.width, to.f32(r));
    } else {
      rows_.sigmoid_multiply(from.f32(r), gates.f32(r), from.width, to.f32(r));
    }
  });
}

void CpuOps::multiply(const TensorView& x, const TensorView& y, const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows other = f32_rows(y);
  const Rows to = f32_rows(out);
  require_same(from, to);
  require_same(from, other);
  each_row(from, [&](std::int64_t r) {
    rows_.multiply(from.f32(r), other.f32(r), from.width, to.f32(r));
  });
}

void CpuOps::soft_cap(const TensorView& x, float cap, const TensorView& out) {
  const Rows from = f32_rows(x);
  const Rows to = f32_rows(out);
  require_same(from, to);
  each_row(from, [&](std::int64_t r) { rows_.soft_cap(from.f32(r), cap, from.width, to.f32(r)); });
}

void CpuOps::merge_attention(const TensorView& o, const TensorView& lse, const TensorView& more_o,
                             const TensorView& more_lse) {
  const Rows to = f32_rows(o);
  const Rows from = f32_rows(more_o);
  require_same(to, from);
  require(lse.dtype == DType::f32 && more_lse.dtype == DType::f32 && lse.shape[1] == to.heads &&
              more_lse.shape[1] == to.heads,
          "a log-sum-exp a head");
  each_row(to, [&](std::int64_t r) {
    const auto at = [&](const TensorView& v) {
      return v.as<float>() + r / to.heads * v.stride[0] + r % to.heads;
    };
    const auto w = attention::merge_weights(*at(lse), *at(more_lse));
    *at(lse) = w.lse;
    for (std::int64_t i = 0; i < to.width; ++i)
      to.f32(r)[i] = w.a * to.f32(r)[i] + w.b * from.f32(r)[i];
  });
}

void CpuOps::convert(const TensorView& x, const TensorView& out) {
  const Rows from = any_rows(x);
  const Rows to = any_rows(out);
  require_same(from, to);
  const auto narrow = [](DType t) { return t == DType::bf16 || t == DType::f16; };
  require(x.dtype == out.dtype || (x.dtype == DType::f32 && narrow(out.dtype)) ||
              (out.dtype == DType::f32 && narrow(x.dtype)),
          "conversions are between fp32 and a 16-bit float");
  each_row(from, [&](std::int64_t r) {
    const auto bits = [](std::byte* p) { return reinterpret_cast<std::uint16_t*>(p); };
    if (x.dtype == out.dtype) {
      std::memcpy(to.at(r), from.at(r), static_cast<std::size_t>(from.width * from.element));
    } else if (out.dtype == DType::bf16) {
      rows_.to_bf16(from.f32(r), from.width, bits(to.at(r)));
    } else if (out.dtype == DType::f16) {
      rows_.to_f16(from.f32(r), from.width, bits(to.at(r)));
    } else if (x.dtype == DType::bf16) {
      rows_.from_bf16(bits(from.at(r)), from.width, to.f32(r));
    } else {
      rows_.from_f16(bits(from.at(r)), from.width, to.f32(r));
    }
  });
}

void CpuOps::choose(const TensorView& logits, const Choice* choices, const TensorView& ids) {
  const Rows from = any_rows(logits);
  require(from.heads == 1 && logits.dtype == DType::f32 && ids.dtype == DType::i32 &&
              ids.shape[0] == from.tokens,
          "an id for each row of fp32 numbers");
  each_row(from, [&](std::int64_t r) {
    const std::span row(reinterpret_cast<const float*>(from.at(r)),
                        static_cast<std::size_t>(from.width));
    ids.as<std::int32_t>()[r] = Chooser().choose(row, choices[r]);
  });
}

void CpuOps::gather_rows(const TensorView& x, const TensorView& rows, const TensorView& out) {
  const Rows from = any_rows(x);
  const Rows to = any_rows(out);
  const std::int32_t* index = indices(rows);
  require(from.heads == 1 && to.heads == 1 && from.width == to.width && x.dtype == out.dtype,
          "rows of one matrix go to rows of another");
  each_row(to, [&](std::int64_t r) {
    require(index[r] >= 0 && index[r] < from.tokens, "gathered rows lie inside the matrix");
    std::memcpy(to.at(r), from.at(index[r]), static_cast<std::size_t>(to.width * to.element));
  });
}

}  // namespace

Result<std::unique_ptr<Ops>> make_cpu_ops(Executor& executor, const CpuOpsOptions& options) {
  return std::unique_ptr<Ops>(std::make_unique<CpuOps>(executor, options));
}

}  // namespace attune::model
