// Operations on each row by itself: norms, rotary positions, activations, conversions, choices.
#include <cmath>
#include <cstring>
#include <span>

#include "attention/lse.hpp"
#include "model/cpu_ops_class.hpp"
#include "model/row_activation.hpp"

namespace attune::model {

using kernels::ops::NormRow;
using kernels::ops::RowActivation;

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

}  // namespace attune::model
