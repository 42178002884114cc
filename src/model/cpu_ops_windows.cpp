// A compressor's windows on CPUs: pooled channel by channel, and kept in rings.
#include <algorithm>
#include <cstring>
#include <vector>

#include "model/cpu_ops_class.hpp"

namespace attune::model {
namespace {

constexpr std::int64_t kMostRows = 512;  ///< of two windows, each no longer than a page

/// One request's rows, those of the step and those its ring has.
struct Tokens {
  const WindowRows& rows;
  const RequestRows& request;

  [[nodiscard]] std::int64_t first_position() const {
    return rows.positions[static_cast<std::size_t>(request.first_row)];
  }
  [[nodiscard]] float* ring_row(std::int32_t slot, std::int64_t position) const {
    const TensorView& rings = rows.rings;
    return rings.as<float>() + slot * rings.stride[0] + position % rings.shape[1] * rings.stride[1];
  }
  [[nodiscard]] const float* row_of(std::int64_t position) const {
    const std::int64_t row = position - first_position();
    if (row < 0) return ring_row(request.state, position);
    return rows.projected.as<float>() + (request.first_row + row) * rows.projected.stride[0];
  }
  /// Rows [first, last) of the step; those that would be overwritten are left out.
  void keep(std::int32_t slot, std::int64_t first, std::int64_t last) const {
    const auto bytes = static_cast<std::size_t>(rows.rings.shape[2]) * sizeof(float);
    for (std::int64_t r = std::max(first, last - rows.rings.shape[1]); r < last; ++r)
      std::memcpy(ring_row(slot, first_position() + r), row_of(first_position() + r), bytes);
  }
};

/// Where the numbers of one pooled window are: rows in order of position.
struct Window {
  const float* values[kMostRows];
  const float* gates[kMostRows];
  const float* bias[kMostRows];
  std::int64_t count = 0;
};

/// The window that ends at position `last`.
void find_rows(const WindowPool& pool, const Tokens& tokens, std::int64_t last, Window& window) {
  const std::int64_t series = pool.overlap ? 2 : 1;
  window.count = 0;
  const auto take = [&](std::int64_t first, std::int64_t column) {
    for (std::int64_t r = 0; r < pool.ratio; ++r) {
      const float* const row = tokens.row_of(first + r);
      window.values[window.count] = row + pool.values + column;
      window.gates[window.count] = row + pool.gates + column;
      window.bias[window.count++] = pool.bias + r * series * pool.dim + column;
    }
  };
  const std::int64_t own = last + 1 - pool.ratio;
  // Nothing comes before the first window.
  if (pool.overlap && own > 0) take(own - pool.ratio, 0);
  take(own, (series - 1) * pool.dim);
}

}  // namespace

Status CpuOps::pool_windows(const WindowPool& pool, const WindowRows& rows, const TensorView& out) {
  const Rows to = f32_rows(out);
  require(to.width == pool.dim && pool.ratio * (pool.overlap ? 2 : 1) <= kMostRows &&
              rows.rings.shape[2] == rows.projected.shape[1],
          "rings of whole rows, and windows of few");
  const auto request_of = [&](std::int64_t row) {
    const auto after = std::ranges::upper_bound(rows.requests, row, {}, &RequestRows::first_row);
    return after == rows.requests.begin() ? nullptr : &after[-1];
  };
  each_row(to, [&](std::int64_t r) {
    std::fill_n(to.f32(r), to.width, 0.0f);
    const RequestRows* const request = request_of(r);
    const std::int64_t position = rows.positions[static_cast<std::size_t>(r)];
    if (request == nullptr || r >= request->first_row + request->num_rows ||
        position % pool.ratio != pool.ratio - 1)
      return;
    Window window;
    find_rows(pool, {rows, *request}, position, window);
    for (std::int64_t c = 0; c < pool.dim; ++c) {
      float share[kMostRows];
      for (std::int64_t i = 0; i < window.count; ++i)
        share[i] = window.gates[i][c] + window.bias[i][c];
      rows_.softmax(share, window.count, share);
      float sum = 0.0f;
      for (std::int64_t i = 0; i < window.count; ++i) sum += share[i] * window.values[i][c];
      to.f32(r)[c] = sum;
    }
  });
  return {};
}

Status CpuOps::keep_windows(const WindowRows& rows) {
  for (const RequestRows& request : rows.requests) {
    if (request.state < 0 || request.num_rows == 0) continue;
    const Tokens tokens{rows, request};
    const std::int64_t known = request.num_rows - request.num_drafts;
    if (request.draft_state >= 0) {
      std::memcpy(tokens.ring_row(request.draft_state, 0), tokens.ring_row(request.state, 0),
                  static_cast<std::size_t>(rows.rings.stride[0]) * sizeof(float));
      tokens.keep(request.draft_state, 0, request.num_rows);
    }
    tokens.keep(request.state, 0, known);
  }
  return {};
}

}  // namespace attune::model
