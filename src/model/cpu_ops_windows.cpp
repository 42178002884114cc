// A compressor's windows on CPUs: pooled channel by channel, and kept in rings.
#include <algorithm>
#include <cstring>

#include "model/cpu_ops_class.hpp"

namespace attune::model {
namespace {

constexpr std::int64_t kMostRows = 512;  ///< of two windows, each no longer than a page

/// Row r of the step, and those of its request: of the step or of its ring.
struct TokenRows {
  const WindowRows& rows;
  std::int64_t r;
  const WindowToken& token;

  [[nodiscard]] float* ring_row(std::int32_t slot, std::int64_t position) const {
    const TensorView& rings = rows.rings;
    return rings.as<float>() + slot * rings.stride[0] + position % rings.shape[1] * rings.stride[1];
  }
  [[nodiscard]] const float* row_of(std::int64_t position) const {
    const std::int64_t back = token.position - position;
    if (back > token.row) return ring_row(token.state, position);
    return rows.projected.as<float>() + (r - back) * rows.projected.stride[0];
  }
  /// … unless a later one of the first `count` rows takes its place.
  void enter(std::int32_t slot, std::int64_t count) const {
    if (slot < 0 || token.row >= count || token.row + rows.rings.shape[1] < count) return;
    std::memcpy(ring_row(slot, token.position), row_of(token.position),
                static_cast<std::size_t>(rows.rings.shape[2]) * sizeof(float));
  }
};

/// Where the numbers of one pooled window are: rows in order of position.
struct Window {
  const float* values[kMostRows];
  const float* gates[kMostRows];
  const float* bias[kMostRows];
  std::int64_t count = 0;
};

/// The window that ends with the token.
void find_rows(const WindowPool& pool, const TokenRows& of, Window& window) {
  window.count = 0;
  const auto take = [&](std::int64_t first, std::int64_t column) {
    for (std::int64_t i = 0; i < pool.ratio; ++i) {
      const float* const row = of.row_of(first + i);
      window.values[window.count] = row + pool.values + column;
      window.gates[window.count] = row + pool.gates + column;
      window.bias[window.count++] = pool.bias + i * pool.series() * pool.dim + column;
    }
  };
  const std::int64_t own = of.token.position + 1 - pool.ratio;
  // Nothing comes before the first window.
  if (pool.overlap && own > 0) take(own - pool.ratio, 0);
  take(own, (pool.series() - 1) * pool.dim);
}

}  // namespace

Status CpuOps::pool_windows(const WindowPool& pool, const WindowRows& rows, const TensorView& out) {
  const Rows to = f32_rows(out);
  require(to.width == pool.dim && pool.ratio * pool.series() <= kMostRows &&
              rows.rings.shape[2] == rows.projected.shape[1],
          "rings of whole rows, and windows of few");
  each_row(to, [&](std::int64_t r) {
    std::fill_n(to.f32(r), to.width, 0.0f);
    const WindowToken& token = rows.tokens[r];
    if (token.state < 0 || token.position % pool.ratio != pool.ratio - 1) return;
    Window window;
    find_rows(pool, {rows, r, token}, window);
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
  for (std::int64_t r = 0; r < rows.projected.shape[0]; ++r) {
    const WindowToken& token = rows.tokens[r];
    const TokenRows of{rows, r, token};
    // A request's first row comes first: the ring is still in front of all of them.
    if (token.row == 0 && token.state >= 0 && token.draft_state >= 0)
      std::memcpy(of.ring_row(token.draft_state, 0), of.ring_row(token.state, 0),
                  static_cast<std::size_t>(rows.rings.stride[0]) * sizeof(float));
    of.enter(token.draft_state, token.num_rows);
    of.enter(token.state, token.known_rows);
  }
  return {};
}

}  // namespace attune::model
