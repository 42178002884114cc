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
void make_room(std::vector<T>& v, std::int64_t n) {
  if (static_cast<std::int64_t>(v.size()) < n) v.resize(static_cast<std::size_t>(n));
}

}  // namespace

CpuProducts::CpuProducts(Executor& executor, const CpuKernels& kernels, bool batch_invariant)
    : executor_(executor),
      kernels_(kernels),
      batch_invariant_(batch_invariant),
      matmul_(executor.num_threads()),
      failures_(static_cast<std::size_t>(executor.num_threads())) {}

bool CpuProducts::by_library(const Product& p, const CpuLinear::Segment& s) const {
  return s.tiles == nullptr && p.x.num_rows > gemv::kMaxRows && !batch_invariant_;
}

bool CpuProducts::in_pieces(const Product& p, const CpuLinear::Segment& s) const {
  return by_library(p, s) && s.view.type != WeightType::f32 &&
         !(s.view.type == WeightType::bf16 && kernels_.fast_bf16);
}

Status CpuProducts::multiply(std::span<const Product> products) {
  // A step may have no product at all: every routed expert of the batch may lie outside this set.
  if (products.empty()) return {};
  place_activations(products);
  if (Status s = add_tasks(products); !s.ok()) return s;
  for_each_item(executor_, static_cast<std::int64_t>(tasks_.size()),
                [&](std::int64_t i, int thread) {
                  const Task& task = tasks_[static_cast<std::size_t>(i)];
                  if (task.job != nullptr) {
                    run_job(task);
                  } else if (Status s = run_part(task, thread); !s.ok()) {
                    failures_[static_cast<std::size_t>(thread)] = std::move(s);
                  }
                });
  for (Status& failure : failures_)
    if (!failure.ok()) return std::exchange(failure, Status{});
  for (const Product& p : products) {
    for (const CpuLinear::Segment& s : p.w->segments()) {
      if (in_pieces(p, s))
        if (Status status = multiply_in_pieces(p, s); !status.ok()) return status;
      if (by_library(p, s) && p.w->bias() != nullptr) add_bias(p, s);
    }
  }
  return {};
}

CpuProducts::Sums& CpuProducts::sums_of(const quant::Layout& layout) {
  for (Sums& s : sums_)
    if (s.layout == layout) return s;
  sums_.push_back({.layout = layout, .start = {}, .sums = {}});
  return sums_.back();
}

void CpuProducts::place_activations(std::span<const Product> products) {
  places_.clear();
  Place next;
  std::int64_t widest = 1;
  bool any = false;
  for (const Product& p : products) {
    next.quantised = !p.w->layouts().empty();
    next.rounded = std::ranges::any_of(p.w->segments(), [&](const CpuLinear::Segment& s) {
      return by_library(p, s) && !in_pieces(p, s) && s.view.type == WeightType::bf16;
    });
    any = any || next.quantised || next.rounded;
    places_.push_back(next);
    next.row += p.x.num_rows;
    next.number += p.x.num_rows * p.w->columns();
    widest = std::max(widest, p.w->columns());
  }
  if (!any) return;
  for (std::size_t i = 0; i < products.size(); ++i) {
    if (places_[i].rounded) make_room(bf16_, next.number);
    if (!places_[i].quantised) continue;
    make_room(q_, next.number);
    make_room(scale_, next.number / quant::kActivationGroup);
    make_room(sums16_, next.number / 16);
    for (const quant::Layout& layout : products[i].w->layouts()) {
      Sums& sums = sums_of(layout);
      make_room(sums.start, next.number / layout.group);
      make_room(sums.sums, next.number / layout.group);
    }
  }
  for_row_ranges(executor_, next.row, widest, [&](std::int64_t first, std::int64_t last, int) {
    const auto after = std::ranges::upper_bound(places_, first, {}, &Place::row);
    auto i = static_cast<std::size_t>(after - places_.begin()) - 1;
    for (std::int64_t row = first; row < last; ++row) {
      while (row >= places_[i].row + products[i].x.num_rows) ++i;
      convert_row(products[i], places_[i], row - places_[i].row);
    }
  });
}

void CpuProducts::convert_row(const Product& product, const Place& place, std::int64_t row) {
  const std::int64_t columns = product.w->columns();
  const std::int64_t number = place.number + row * columns;
  const float* x = product.x.data + row * product.x.stride;
  if (place.rounded) kernels_.rows->to_bf16(x, columns, bf16_.data() + number);
  if (!place.quantised) return;
  const quant::Activations out{.q = q_.data() + number,
                               .scale = scale_.data() + number / quant::kActivationGroup,
                               .sums = sums16_.data() + number / 16};
  kernels_.quant->quantise(x, columns, out);
  for (Sums& sums : sums_) {
    if (std::ranges::find(product.w->layouts(), sums.layout) == product.w->layouts().end())
      continue;
    kernels_.quant->fill_sums(out, columns, sums.layout,
                              sums.start.data() + number / sums.layout.group,
                              sums.sums.data() + number / sums.layout.group);
  }
}

Status CpuProducts::add_tasks(std::span<const Product> products) {
  tasks_.clear();
  // Several products share the threads as they are; a single one is cut for them.
  const std::int64_t parts = base::ceil_div<std::int64_t>(
      executor_.num_threads(), static_cast<std::int64_t>(products.size()));
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product& p = products[i];
    if (p.x.num_rows == 0) continue;
    const auto segments = p.w->segments();
    for (const CpuLinear::Job& job : p.w->jobs()) {
      const CpuLinear::Segment& s = segments[job.segment];
      if (!by_library(p, s))
        tasks_.push_back({.product = &p, .place = &places_[i], .job = &job, .segment = &s});
    }
    for (const CpuLinear::Segment& s : segments) {
      if (!by_library(p, s) || in_pieces(p, s)) continue;
      const bool bf16 = s.view.type == WeightType::bf16;
      auto plan = matmul_.plan({.m = p.y.num_rows,
                                .n = s.view.rows(),
                                .k = s.view.columns(),
                                .lda = bf16 ? s.view.columns() : p.x.stride,
                                .ldc = p.y.stride,
                                .input = bf16 ? DType::bf16 : DType::f32,
                                .accumulate = p.accumulate},
                               parts);
      if (!plan.ok()) return plan.status();
      for (std::int64_t part = 0; part < num_parts(**plan); ++part)
        tasks_.push_back(
            {.product = &p, .place = &places_[i], .segment = &s, .plan = *plan, .part = part});
    }
  }
  return {};
}

void CpuProducts::run_job(const Task& task) const {
  const Product& p = *task.product;
  const CpuLinear::Segment& s = *task.segment;
  const CpuLinear::Job& job = *task.job;
  const std::int64_t columns = p.w->columns();
  const std::int64_t first = s.first_row + job.first;
  if (s.tiles != nullptr) {
    const quant::Layout& layout = p.w->layouts()[s.layout];
    const auto sums = std::ranges::find(sums_, layout, &Sums::layout);
    const std::int64_t number = task.place->number;
    quant::find(*kernels_.quant, layout)
        .multiply({.tiles = s.tiles + job.first / quant::kTileRows * s.tile_stride,
                   .tile_stride = s.tile_stride,
                   .num_tiles = base::ceil_div<std::int64_t>(job.count, quant::kTileRows),
                   .columns = columns,
                   .num_rows = p.x.num_rows,
                   .q = q_.data() + number,
                   .scale = scale_.data() + number / quant::kActivationGroup,
                   .start = sums->start.data() + number / layout.group,
                   .sums = sums->sums.data() + number / layout.group,
                   .y = p.y.data + first,
                   .y_stride = p.y.stride,
                   .y_columns = job.count,
                   .accumulate = p.accumulate});
  } else {
    const WeightView rows = s.view.row_range(job.first, job.count);
    gemv::find(kernels_.isa, plain_dtype(rows.type))
        .multiply({.w = rows.data,
                   .num_columns = job.count,
                   .k = columns,
                   .x = p.x.data,
                   .x_stride = p.x.stride,
                   .num_rows = p.x.num_rows,
                   .y = p.y.data + first,
                   .y_stride = p.y.stride,
                   .accumulate = p.accumulate});
  }
  if (p.w->bias() == nullptr) return;
  for (std::int64_t r = 0; r < p.x.num_rows; ++r)
    kernels_.rows->add_scaled(p.w->bias() + first, 1.0f, job.count,
                              p.y.data + r * p.y.stride + first);
}

Status CpuProducts::run_part(const Task& task, int thread) const {
  const Product& p = *task.product;
  const CpuLinear::Segment& s = *task.segment;
  const void* x = s.view.type == WeightType::bf16
                      ? static_cast<const void*>(bf16_.data() + task.place->number)
                      : p.x.data;
  return matmul_.run(*task.plan, x, s.view.data, p.y.data + s.first_row, task.part, thread);
}

Status CpuProducts::multiply_in_pieces(const Product& product, const CpuLinear::Segment& segment) {
  const std::int64_t columns = segment.view.columns();
  // As many rows of the weight at a time as the second caches of all cores hold in fp32.
  const std::int64_t step =
      std::max<std::int64_t>(64, executor_.num_threads() * (std::int64_t{1} << 18) / columns);
  for (std::int64_t first = 0; first < segment.view.rows(); first += step) {
    const WeightView rows =
        segment.view.row_range(first, std::min(step, segment.view.rows() - first));
    make_room(piece_, rows.num_elements());
    for_row_ranges(executor_, rows.rows(), columns, [&](std::int64_t a, std::int64_t b, int) {
      kernels::ops::dequantise(rows.type, rows.row_range(a, b - a).data, (b - a) * columns,
                               piece_.data() + a * columns);
    });
    auto plan = matmul_.plan({.m = product.y.num_rows,
                              .n = rows.rows(),
                              .k = columns,
                              .lda = product.x.stride,
                              .ldc = product.y.stride,
                              .accumulate = product.accumulate},
                             executor_.num_threads());
    if (!plan.ok()) return plan.status();
    for_each_item(executor_, num_parts(**plan), [&](std::int64_t part, int thread) {
      Status s = matmul_.run(**plan, product.x.data, piece_.data(),
                             product.y.data + segment.first_row + first, part, thread);
      if (!s.ok()) failures_[static_cast<std::size_t>(thread)] = std::move(s);
    });
    for (Status& failure : failures_)
      if (!failure.ok()) return std::exchange(failure, Status{});
  }
  return {};
}

void CpuProducts::add_bias(const Product& product, const CpuLinear::Segment& segment) const {
  const std::int64_t columns = segment.view.rows();
  for_row_ranges(
      executor_, product.y.num_rows, columns, [&](std::int64_t first, std::int64_t last, int) {
        for (std::int64_t r = first; r < last; ++r)
          kernels_.rows->add_scaled(product.w->bias() + segment.first_row, 1.0f, columns,
                                    product.y.data + r * product.y.stride + segment.first_row);
      });
}

}  // namespace attune::model
