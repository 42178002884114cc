#include "model/cpu_linear.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/math.hpp"
#include "kernels/ops/dequant.hpp"
#include "model/parallel.hpp"

namespace attune::model {
namespace {

namespace quant = kernels::quant_matmul;
using kernels::ops::row_bytes;

/// The plain type in which a weight is multiplied; quantised ones that stay so are repacked
/// instead.
WeightType multiplied_as(WeightType stored, CpuWeights form) {
  switch (form) {
    case CpuWeights::f32: return WeightType::f32;
    case CpuWeights::bf16: return WeightType::bf16;
    case CpuWeights::as_stored: break;
  }
  return stored;
}

/// Numbers are read where they lie only from addresses they may lie at; safetensors promises none.
bool usable_in_place(const WeightView& view) {
  const auto size = static_cast<std::uintptr_t>(row_bytes(view.type, 1));
  return reinterpret_cast<std::uintptr_t>(view.data) % size == 0;
}

std::int64_t bytes_of(const CpuLinear::Segment& s) {
  return s.tiles == nullptr
             ? s.view.bytes()
             : base::ceil_div<std::int64_t>(s.view.rows(), quant::kTileRows) * s.tile_stride;
}

void convert_rows(const WeightView& view, WeightType to, std::byte* out, Executor& executor) {
  const std::int64_t columns = view.columns();
  for_row_ranges(executor, view.rows(), columns, [&](std::int64_t first, std::int64_t last, int) {
    const std::byte* from = view.data + first * row_bytes(view.type, columns);
    std::byte* at = out + first * row_bytes(to, columns);
    const std::int64_t count = (last - first) * columns;
    if (to == WeightType::bf16) {
      kernels::ops::dequantise_bf16(view.type, from, count, reinterpret_cast<std::uint16_t*>(at));
    } else if (to == WeightType::f32) {
      kernels::ops::dequantise(view.type, from, count, reinterpret_cast<float*>(at));
    } else {
      std::copy_n(from, (last - first) * row_bytes(to, columns), at);
    }
  });
}

void pack_tiles(const WeightView& view, std::int64_t stride, std::byte* out, Executor& executor) {
  const std::int64_t columns = view.columns();
  const std::int64_t tiles = base::ceil_div<std::int64_t>(view.rows(), quant::kTileRows);
  for_row_ranges(executor, tiles, columns * quant::kTileRows,
                 [&](std::int64_t first, std::int64_t last, int) {
                   for (std::int64_t t = first; t < last; ++t) {
                     const std::int64_t row = t * quant::kTileRows;
                     quant::pack_tile(view.type, view.data + row * row_bytes(view.type, columns),
                                      view.rows() - row, columns, out + t * stride);
                   }
                 });
}

}  // namespace

Result<std::unique_ptr<CpuLinear>> CpuLinear::make(const LinearParts& parts,
                                                   const Conversion& conversion) {
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
    linear->segments_.push_back({.view = view, .first_row = linear->rows_});
    linear->rows_ += view.rows();
    if (parts.lookup_only) continue;
    if (Status s = linear->convert_segment(view, conversion); !s.ok()) return s;
  }
  if (Status s = linear->add_biases(parts); !s.ok()) return s;
  linear->cut_into_jobs(conversion.executor.num_threads());
  return linear;
}

Status CpuLinear::convert_segment(const WeightView& view, const Conversion& conversion) {
  const WeightType type = multiplied_as(view.type, conversion.form);
  const bool repack = kernels::ops::is_quantised(type);
  if (!repack && type == view.type && usable_in_place(view)) return {};

  Segment& s = segments_.back();
  const std::int64_t columns = view.columns();
  std::int64_t bytes = view.rows() * row_bytes(type, columns);
  if (repack) {
    const quant::Layout layout = quant::layout_of(type);
    s.layout = static_cast<std::size_t>(std::ranges::find(layouts_, layout) - layouts_.begin());
    if (s.layout == layouts_.size()) layouts_.push_back(layout);
    s.tile_stride = quant::tile_bytes(layout, columns);
    bytes = base::ceil_div<std::int64_t>(view.rows(), quant::kTileRows) * s.tile_stride;
  }
  std::byte* memory = conversion.arena.take(static_cast<std::size_t>(bytes));
  if (memory == nullptr)
    return {StatusCode::out_of_memory,
            "no memory for " + std::to_string(bytes) + " bytes of weights"};
  const std::span<std::byte> out(memory, static_cast<std::size_t>(bytes));
  ConvertedWeights* kept = conversion.kept;
  const std::uint64_t key = kept == nullptr ? 0 : ConvertedWeights::key_of(view, type);
  if (kept == nullptr || !kept->read(key, out)) {
    if (repack) {
      pack_tiles(view, s.tile_stride, memory, conversion.executor);
    } else {
      convert_rows(view, type, memory, conversion.executor);
    }
    if (kept != nullptr) kept->write(key, out);
  }
  if (repack) {
    s.tiles = memory;
  } else {
    s.view.data = memory;
    s.view.type = type;
  }
  return {};
}

Status CpuLinear::add_biases(const LinearParts& parts) {
  const bool any = std::ranges::any_of(parts.biases, &WeightView::defined);
  if (!any) return {};
  bias_.assign(static_cast<std::size_t>(rows_), 0.0f);
  for (std::size_t i = 0; i < parts.biases.size(); ++i) {
    const WeightView& bias = parts.biases[i];
    if (!bias.defined()) continue;
    if (bias.num_elements() != parts.weights[i].rows())
      return invalid_argument("a bias of " + std::to_string(bias.num_elements()) +
                              " numbers beside a weight of " +
                              std::to_string(parts.weights[i].rows()) + " rows");
    kernels::ops::dequantise(bias.type, bias.data, bias.num_elements(),
                             bias_.data() + segments_[i].first_row);
  }
  return {};
}

void CpuLinear::cut_into_jobs(int num_threads) {
  // Large enough to be worth claiming, and enough of them that threads finish together.
  constexpr std::int64_t kLeastBytes = 32768;
  constexpr std::int64_t kPerThread = 8;
  std::int64_t total = 0;
  for (const Segment& s : segments_) total += bytes_of(s);
  const std::int64_t target =
      std::max(kLeastBytes, total / (num_threads == 1 ? 1 : num_threads * kPerThread));
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const std::int64_t rows = segments_[i].view.rows();
    const std::int64_t row_size =
        std::max<std::int64_t>(1, bytes_of(segments_[i]) / std::max<std::int64_t>(rows, 1));
    const std::int64_t step = base::round_up<std::int64_t>(
        std::max<std::int64_t>(1, target / row_size), quant::kTileRows);
    for (std::int64_t first = 0; first < rows; first += step)
      jobs_.push_back({.segment = i, .first = first, .count = std::min(step, rows - first)});
  }
}

}  // namespace attune::model
