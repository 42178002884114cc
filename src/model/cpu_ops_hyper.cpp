// Hyper-connections on CPUs: a few numbers a token, and sums of whole streams.
#include <algorithm>
#include <cmath>

#include "model/cpu_ops_class.hpp"

namespace attune::model {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

/// Rows and columns of a square matrix are brought to a sum of 1 in turns, columns first and last.
void balance(float* comb, const HyperParams& p) {
  const int n = p.streams;
  const auto divide_columns = [&] {
    for (int k = 0; k < n; ++k) {
      float sum = p.eps;
      for (int i = 0; i < n; ++i) sum += comb[i * n + k];
      for (int i = 0; i < n; ++i) comb[i * n + k] /= sum;
    }
  };
  const auto divide_rows = [&] {
    for (int i = 0; i < n; ++i) {
      float sum = p.eps;
      for (int k = 0; k < n; ++k) sum += comb[i * n + k];
      for (int k = 0; k < n; ++k) comb[i * n + k] /= sum;
    }
  };
  divide_columns();
  for (int turn = 1; turn < p.iterations; ++turn) {
    divide_rows();
    divide_columns();
  }
}

}  // namespace

Status CpuOps::hyper_weights(const HyperParams& p, const TensorView& weights) {
  const Rows rows = f32_rows(weights);
  const int n = p.streams;
  const bool pre_alone = rows.width == n;
  require(pre_alone || rows.width == (2 + n) * n, "weights of pre, post and comb, or of pre");
  each_row(rows, [&](std::int64_t r) {
    float* const row = rows.f32(r);
    const auto turned = [&](int part, int i) { return row[i] * p.scale[part] + p.base[i]; };
    for (int i = 0; i < n; ++i) row[i] = sigmoid(turned(0, i)) + p.eps;
    if (pre_alone) return;
    for (int i = n; i < 2 * n; ++i) row[i] = 2.0f * sigmoid(turned(1, i));
    for (int i = 2 * n; i < (2 + n) * n; ++i) row[i] = turned(2, i);
    float* const comb = row + 2 * n;
    for (int i = 0; i < n; ++i) {
      rows_.softmax(comb + i * n, n, comb + i * n);
      for (int k = 0; k < n; ++k) comb[i * n + k] += p.eps;
    }
    balance(comb, p);
  });
  return {};
}

Status CpuOps::hyper_collapse(const TensorView& streams, const TensorView& pre,
                              const TensorView& out) {
  const Rows from = f32_rows(streams);
  const Rows weights = f32_rows(pre);
  const Rows to = f32_rows(out);
  require(from.width == weights.width * to.width && from.count() == to.count() &&
              weights.count() == to.count(),
          "a weight for each stream");
  each_row(to, [&](std::int64_t r) {
    rows_.scale(from.f32(r), weights.f32(r)[0], to.width, to.f32(r));
    for (std::int64_t i = 1; i < weights.width; ++i)
      rows_.add_scaled(from.f32(r) + i * to.width, weights.f32(r)[i], to.width, to.f32(r));
  });
  return {};
}

Status CpuOps::hyper_expand(const TensorView& x, const TensorView& post, const TensorView& comb,
                            const TensorView& streams) {
  const Rows from = f32_rows(x);
  const Rows factors = f32_rows(post);
  const Rows mix = f32_rows(comb);
  const Rows to = f32_rows(streams);
  constexpr std::int64_t kMostStreams = 16;
  const std::int64_t n = factors.width;
  require(n <= kMostStreams && to.width == n * from.width && mix.width == n * n &&
              from.count() == to.count() && factors.count() == to.count(),
          "a factor for each stream, and one for each pair of them");
  each_row(from, [&](std::int64_t r) {
    const float* const weights = mix.f32(r);
    float* const row = to.f32(r);
    // All streams of a number are read before any is written.
    for (std::int64_t d = 0; d < from.width; ++d) {
      float old[kMostStreams];
      for (std::int64_t i = 0; i < n; ++i) old[i] = row[i * from.width + d];
      for (std::int64_t k = 0; k < n; ++k) {
        float sum = factors.f32(r)[k] * from.f32(r)[d];
        for (std::int64_t i = 0; i < n; ++i) sum += weights[i * n + k] * old[i];
        row[k * from.width + d] = sum;
      }
    }
  });
  return {};
}

}  // namespace attune::model
