#include "model/cpu_linear.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/ops/dequant.hpp"
#include "model/parallel.hpp"

namespace attune::model {
namespace {

/// The form in which a weight is multiplied.
WeightType multiplied_as(WeightType stored, CpuWeights form) {
  if (form == CpuWeights::f32 || stored == WeightType::f32) {
    return form == CpuWeights::bf16 ? WeightType::bf16 : WeightType::f32;
  }
  return WeightType::bf16;
}

/// fp32 and bf16 are read where they lie if they lie on whole numbers' addresses; safetensors
/// promises no alignment.
bool usable_in_place(const WeightView& view) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  return address % static_cast<std::uintptr_t>(kernels::ops::row_bytes(view.type, 1)) == 0;
}

std::vector<std::byte> converted(const WeightView& view, WeightType to, Executor& executor) {
  const std::int64_t columns = view.columns();
  const std::int64_t from_bytes = kernels::ops::row_bytes(view.type, columns);
  const std::int64_t to_bytes = kernels::ops::row_bytes(to, columns);
  std::vector<std::byte> copy(static_cast<std::size_t>(view.rows() * to_bytes));
  for_row_ranges(executor, view.rows(), columns, [&](std::int64_t first, std::int64_t last, int) {
    const std::byte* from = view.data + first * from_bytes;
    std::byte* out = copy.data() + first * to_bytes;
    if (to == WeightType::bf16) {
      kernels::ops::dequantise_bf16(view.type, from, (last - first) * columns,
                                    reinterpret_cast<std::uint16_t*>(out));
    } else {
      kernels::ops::dequantise(view.type, from, (last - first) * columns,
                               reinterpret_cast<float*>(out));
    }
  });
  return copy;
}

}  // namespace

Result<std::unique_ptr<CpuLinear>> CpuLinear::make(const LinearParts& parts, CpuWeights form,
                                                   Executor& executor) {
  require(!parts.weights.empty(), "a matrix has parts");
  require(parts.biases.empty() || parts.biases.size() == parts.weights.size(),
          "biases: none, or one for each matrix");
  auto linear = std::make_unique<CpuLinear>();
  linear->columns_ = parts.weights.front().columns();
  for (const WeightView& view : parts.weights) {
    if (view.columns() != linear->columns_)
      return invalid_argument("stacked weights need equal columns, found " +
                              std::to_string(linear->columns_) + " and " +
                              std::to_string(view.columns()));
    Segment segment{.view = view, .copy = {}, .first_row = linear->rows_};
    const WeightType type = multiplied_as(view.type, form);
    if (type != view.type || !usable_in_place(view)) {
      segment.copy = converted(view, type, executor);
      segment.view.data = segment.copy.data();
      segment.view.type = type;
    }
    linear->rows_ += view.rows();
    linear->segments_.push_back(std::move(segment));
  }
  bool has_bias = false;
  for (const WeightView& bias : parts.biases) has_bias = has_bias || bias.defined();
  if (has_bias) {
    linear->bias_.assign(static_cast<std::size_t>(linear->rows_), 0.0f);
    for (std::size_t i = 0; i < parts.biases.size(); ++i) {
      const WeightView& bias = parts.biases[i];
      if (!bias.defined()) continue;
      if (bias.num_elements() != parts.weights[i].rows())
        return invalid_argument("a bias of " + std::to_string(bias.num_elements()) +
                                " numbers beside a weight of " +
                                std::to_string(parts.weights[i].rows()) + " rows");
      kernels::ops::dequantise(bias.type, bias.data, bias.num_elements(),
                               linear->bias_.data() + linear->segments_[i].first_row);
    }
  }
  return linear;
}

CpuProducts::CpuProducts(Executor& executor, const kernels::ops::RowKernels& rows)
    : executor_(executor), rows_(rows), matmul_(executor.num_threads()) {}

Status CpuProducts::multiply(const CpuLinear& w, const Matrix& x, const Matrix& y,
                             bool accumulate) {
  if (x.num_rows == 0) return {};
  const std::int64_t columns = w.columns();
  const bool any_bf16 = std::ranges::any_of(
      w.segments(), [](const CpuLinear::Segment& s) { return s.view.type == WeightType::bf16; });
  if (any_bf16) {
    x_bf16_.resize(std::max(x_bf16_.size(), static_cast<std::size_t>(x.num_rows * columns)));
    for_row_ranges(executor_, x.num_rows, columns, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t r = first; r < last; ++r)
        rows_.to_bf16(x.data + r * x.stride, columns, x_bf16_.data() + r * columns);
    });
  }
  for (const CpuLinear::Segment& s : w.segments()) {
    const Matrix out{.data = y.data + s.first_row, .num_rows = y.num_rows, .stride = y.stride};
    const bool bf16 = s.view.type == WeightType::bf16;
    const Status status =
        bf16 ? multiply_segment(s, x_bf16_.data(), DType::bf16, columns, out, accumulate)
             : multiply_segment(s, x.data, DType::f32, x.stride, out, accumulate);
    if (!status.ok()) return status;
  }
  if (w.bias() != nullptr)
    for_row_ranges(executor_, x.num_rows, w.rows(),
                   [&](std::int64_t first, std::int64_t last, int) {
                     for (std::int64_t r = first; r < last; ++r)
                       rows_.add_scaled(w.bias(), 1.0f, w.rows(), y.data + r * y.stride);
                   });
  return {};
}

Status CpuProducts::multiply_segment(const CpuLinear::Segment& segment, const void* x, DType x_type,
                                     std::int64_t x_stride, const Matrix& y, bool accumulate) {
  const kernels::ops::MatmulShape shape{.m = y.num_rows,
                                        .n = segment.view.rows(),
                                        .k = segment.view.columns(),
                                        .lda = x_stride,
                                        .ldc = y.stride,
                                        .input = x_type,
                                        .accumulate = accumulate};
  auto plan = matmul_.plan(shape, executor_.num_threads());
  if (!plan.ok()) return plan.status();
  std::vector<Status> failures(static_cast<std::size_t>(executor_.num_threads()));
  for_each_item(executor_, num_parts(**plan), [&](std::int64_t part, int thread) {
    Status status = matmul_.run(**plan, x, segment.view.data, y.data, part, thread);
    if (!status.ok()) failures[static_cast<std::size_t>(thread)] = std::move(status);
  });
  for (Status& failure : failures)
    if (!failure.ok()) return std::move(failure);
  return {};
}

}  // namespace attune::model
