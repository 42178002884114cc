#include "model/cpu_products.hpp"

#include <algorithm>
#include <utility>

#include "base/math.hpp"
#include "kernels/gemv/table.hpp"
#include "kernels/ops/dequant.hpp"
#include "model/parallel.hpp"

namespace attune::model {
namespace {

namespace gemv = kernels::gemv;
namespace quant = kernels::quant_matmul;

DType plain_dtype(WeightType type) {
  switch (type) {
    case WeightType::bf16: return DType::bf16;
    case WeightType::f16: return DType::f16;
    default: return DType::f32;
  }
}

template <class T>
T* room(std::vector<T>& v, std::int64_t n) {
  if (static_cast<std::int64_t>(v.size()) < n) v.resize(static_cast<std::size_t>(n));
  return v.data();
}

}  // namespace

CpuProducts::CpuProducts(Executor& executor, const CpuKernels& kernels, bool batch_invariant)
    : executor_(executor),
      kernels_(kernels),
      batch_invariant_(batch_invariant),
      matmul_(executor.num_threads()) {}

Status CpuProducts::multiply(const CpuLinear& w, const Matrix& x, const Matrix& y,
                             bool accumulate) {
  if (x.num_rows == 0) return {};
  if (batch_invariant_ && x.num_rows > gemv::kMaxRows) {
    // The few-rows kernels sum each row in one order, whatever stands beside it.
    for (std::int64_t first = 0; first < x.num_rows; first += gemv::kMaxRows) {
      const std::int64_t count = std::min(gemv::kMaxRows, x.num_rows - first);
      const auto slice = [&](const Matrix& m) {
        return Matrix{.data = m.data + first * m.stride, .num_rows = count, .stride = m.stride};
      };
      if (Status s = multiply(w, slice(x), slice(y), accumulate); !s.ok()) return s;
    }
    return {};
  }
  if (!w.layouts().empty()) quantise(w, x);
  const bool few = x.num_rows <= gemv::kMaxRows;
  const auto& jobs = w.jobs();
  for_each_item(executor_, static_cast<std::int64_t>(jobs.size()), [&](std::int64_t i, int) {
    const CpuLinear::Job& job = jobs[static_cast<std::size_t>(i)];
    if (few || w.segments()[job.segment].tiles != nullptr) run_job(w, job, x, y, accumulate);
  });
  if (few) return {};
  for (const CpuLinear::Segment& s : w.segments()) {
    if (s.tiles != nullptr) continue;
    const Matrix out{.data = y.data + s.first_row, .num_rows = y.num_rows, .stride = y.stride};
    if (Status status = multiply_by_library(s, x, out, accumulate); !status.ok()) return status;
    if (w.bias() == nullptr) continue;
    const float* bias = w.bias() + s.first_row;
    const std::int64_t columns = s.view.rows();
    for_row_ranges(executor_, y.num_rows, columns, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t r = first; r < last; ++r)
        kernels_.rows->add_scaled(bias, 1.0f, columns, out.data + r * y.stride);
    });
  }
  return {};
}

void CpuProducts::quantise(const CpuLinear& w, const Matrix& x) {
  const std::int64_t columns = w.columns();
  std::int8_t* q = room(quantised_.q, x.num_rows * columns);
  float* scale = room(quantised_.scale, x.num_rows * (columns / quant::kActivationGroup));
  std::int32_t* sums16 = room(quantised_.sums16, x.num_rows * (columns / 16));
  if (quantised_.by_layout.size() < w.layouts().size())
    quantised_.by_layout.resize(w.layouts().size());
  for (std::size_t l = 0; l < w.layouts().size(); ++l) {
    const std::int64_t groups = columns / w.layouts()[l].group;
    room(quantised_.by_layout[l].start, x.num_rows * groups);
    room(quantised_.by_layout[l].sums, x.num_rows * groups);
  }
  for_row_ranges(executor_, x.num_rows, columns, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t r = first; r < last; ++r) {
      const quant::Activations row{.q = q + r * columns,
                                   .scale = scale + r * (columns / quant::kActivationGroup),
                                   .sums = sums16 + r * (columns / 16)};
      kernels_.quant->quantise(x.data + r * x.stride, columns, row);
      for (std::size_t l = 0; l < w.layouts().size(); ++l) {
        const std::int64_t groups = columns / w.layouts()[l].group;
        kernels_.quant->fill_sums(row, columns, w.layouts()[l],
                                  quantised_.by_layout[l].start.data() + r * groups,
                                  quantised_.by_layout[l].sums.data() + r * groups);
      }
    }
  });
}

void CpuProducts::run_job(const CpuLinear& w, const CpuLinear::Job& job, const Matrix& x,
                          const Matrix& y, bool accumulate) const {
  const CpuLinear::Segment& s = w.segments()[job.segment];
  const std::int64_t columns = w.columns();
  const std::int64_t first = s.first_row + job.first;
  if (s.tiles != nullptr) {
    const quant::Layout& layout = w.layouts()[s.layout];
    quant::find(*kernels_.quant, layout)
        .multiply({.tiles = s.tiles + job.first / quant::kTileRows * s.tile_stride,
                   .tile_stride = s.tile_stride,
                   .num_tiles = base::ceil_div<std::int64_t>(job.count, quant::kTileRows),
                   .columns = columns,
                   .num_rows = x.num_rows,
                   .q = quantised_.q.data(),
                   .scale = quantised_.scale.data(),
                   .start = quantised_.by_layout[s.layout].start.data(),
                   .sums = quantised_.by_layout[s.layout].sums.data(),
                   .y = y.data + first,
                   .y_stride = y.stride,
                   .y_columns = job.count,
                   .accumulate = accumulate});
  } else {
    const WeightView rows = s.view.row_range(job.first, job.count);
    gemv::find(kernels_.isa, plain_dtype(rows.type))
        .multiply({.w = rows.data,
                   .num_columns = job.count,
                   .k = columns,
                   .x = x.data,
                   .x_stride = x.stride,
                   .num_rows = x.num_rows,
                   .y = y.data + first,
                   .y_stride = y.stride,
                   .accumulate = accumulate});
  }
  if (w.bias() == nullptr) return;
  for (std::int64_t r = 0; r < x.num_rows; ++r)
    kernels_.rows->add_scaled(w.bias() + first, 1.0f, job.count, y.data + r * y.stride + first);
}

Status CpuProducts::multiply_by_library(const CpuLinear::Segment& segment, const Matrix& x,
                                        const Matrix& y, bool accumulate) {
  const std::int64_t columns = segment.view.columns();
  kernels::ops::MatmulShape shape{.m = y.num_rows,
                                  .n = segment.view.rows(),
                                  .k = columns,
                                  .lda = x.stride,
                                  .ldc = y.stride,
                                  .accumulate = accumulate};
  if (segment.view.type == WeightType::f32)
    return run_plan(shape, x.data, segment.view.data, y.data);

  if (segment.view.type == WeightType::bf16 && kernels_.fast_bf16) {
    std::uint16_t* rounded = room(x_bf16_, x.num_rows * columns);
    for_row_ranges(executor_, x.num_rows, columns, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t r = first; r < last; ++r)
        kernels_.rows->to_bf16(x.data + r * x.stride, columns, rounded + r * columns);
    });
    shape.input = DType::bf16;
    shape.lda = columns;
    return run_plan(shape, rounded, segment.view.data, y.data);
  }

  // A piece of the weight at a time, in fp32, as large as the second cache of all cores.
  const std::int64_t step =
      std::max<std::int64_t>(64, executor_.num_threads() * (std::int64_t{1} << 18) / columns);
  for (std::int64_t first = 0; first < segment.view.rows(); first += step) {
    const WeightView rows =
        segment.view.row_range(first, std::min(step, segment.view.rows() - first));
    float* piece = room(piece_, rows.num_elements());
    for_row_ranges(executor_, rows.rows(), columns, [&](std::int64_t a, std::int64_t b, int) {
      kernels::ops::dequantise(rows.type, rows.row_range(a, b - a).data, (b - a) * columns,
                               piece + a * columns);
    });
    shape.n = rows.rows();
    if (Status s = run_plan(shape, x.data, piece, y.data + first); !s.ok()) return s;
  }
  return {};
}

Status CpuProducts::run_plan(const kernels::ops::MatmulShape& shape, const void* x, const void* w,
                             float* y) {
  auto plan = matmul_.plan(shape, executor_.num_threads());
  if (!plan.ok()) return plan.status();
  std::vector<Status> failures(static_cast<std::size_t>(executor_.num_threads()));
  for_each_item(executor_, num_parts(**plan), [&](std::int64_t part, int thread) {
    Status status = matmul_.run(**plan, x, w, y, part, thread);
    if (!status.ok()) failures[static_cast<std::size_t>(thread)] = std::move(status);
  });
  for (Status& failure : failures)
    if (!failure.ok()) return std::move(failure);
  return {};
}

}  // namespace attune::model
