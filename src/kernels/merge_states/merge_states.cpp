#include "kernels/merge_states/merge_states.hpp"

#include <cmath>
#include <cstdint>

#include "attention/lse.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::kernels::merge_states {
namespace {

void store(const dense::Rows& o, std::int64_t at, const float* sums, float factor, int dims) {
  switch (o.dtype) {
    case DType::f32: {
      float* const to = static_cast<float*>(o.data) + at;
      for (int d = 0; d < dims; ++d) to[d] = sums[d] * factor;
      return;
    }
    case DType::bf16: {
      auto* const to = static_cast<tensor::Bf16*>(o.data) + at;
      for (int d = 0; d < dims; ++d) to[d] = tensor::to_bf16(sums[d] * factor);
      return;
    }
    default: {
      auto* const to = static_cast<tensor::F16*>(o.data) + at;
      for (int d = 0; d < dims; ++d) to[d] = tensor::round_to<tensor::F16>(sums[d] * factor);
      return;
    }
  }
}

/// States that are summed together: each piece of a row is added up in registers, and as many rows
/// are read at a time as the hardware follows. Sums are formed in the order of the states.
class Weighed {
 public:
  void add(float weight, const float* state) {
    weight_[count_] = weight;
    state_[count_++] = state;
  }
  [[nodiscard]] bool full() const { return count_ == kMost; }

  void flush(float* sums, int dims) {
    int d = 0;
    for (; d + kPiece <= dims; d += kPiece) {
      float piece[kPiece];
      for (int i = 0; i < kPiece; ++i) piece[i] = sums[d + i];
      for (int s = 0; s < count_; ++s) {
        const float* const from = state_[s] + d;
        // The same piece of the next row, mostly in another core's cache. Not a pointer into this
        // row's array, so not pointer arithmetic.
        const auto next = reinterpret_cast<std::uintptr_t>(from + dims);
        __builtin_prefetch(reinterpret_cast<const void*>(next));
        __builtin_prefetch(reinterpret_cast<const void*>(next + kPiece / 2 * sizeof(float)));
        for (int i = 0; i < kPiece; ++i) piece[i] += weight_[s] * from[i];
      }
      for (int i = 0; i < kPiece; ++i) sums[d + i] = piece[i];
    }
    for (; d < dims; ++d)
      for (int s = 0; s < count_; ++s) sums[d] += weight_[s] * state_[s][d];
    count_ = 0;
  }

 private:
  static constexpr int kMost = 16;
  static constexpr int kPiece = 32;
  float weight_[kMost];
  const float* state_[kMost];
  int count_ = 0;
};

}  // namespace

void run(const dense::Params& p, const Item& item, const Source* sources, float* sums) {
  constexpr float kEmpty = attention::kEmptyLse<float>;
  const std::int64_t rows = item.num_tokens * item.num_heads;
  const int dims = p.head_dim_vo;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t token_in_item = row / item.num_heads;
    const std::int64_t head_in_item = row % item.num_heads;
    const std::int64_t token = item.first_token + token_in_item;
    const std::int64_t head = item.first_head + head_in_item;
    const auto each_state = [&](const auto& visit) {
      for (const Source* s = sources + item.first_source;
           s < sources + item.first_source + item.num_sources; ++s) {
        std::int64_t at = s->first_row + token_in_item * s->token_stride + head_in_item;
        for (std::int64_t part = 0; part < s->num_parts; ++part, at += s->part_stride) visit(at);
      }
    };

    // Weights against the largest lse, states in order: the same bits whoever computed them.
    float largest = kEmpty;
    each_state([&](std::int64_t at) {
      const float lse = p.partial_lse[at];
      if (lse > largest || lse != lse) largest = lse;
    });
    float total = 0.0f;
    for (int d = 0; d < dims; ++d) sums[d] = 0.0f;
    if (largest != kEmpty) {
      Weighed some;
      each_state([&](std::int64_t at) {
        const float lse = p.partial_lse[at];
        if (lse == kEmpty) return;
        const float weight = std::exp(lse - largest);
        total += weight;
        some.add(weight, p.partial_o + at * dims);
        if (some.full()) some.flush(sums, dims);
      });
      some.flush(sums, dims);
    }
    const bool empty = total == 0.0f;
    const float lse = empty ? kEmpty : largest + std::log(total);
    float factor = empty ? 0.0f : p.v_scale / total;
    if (p.v_scale_per_head != nullptr) factor *= p.v_scale_per_head[head / p.gqa_group_size];
    if (p.sinks != nullptr && !empty) factor *= attention::sink_factor(lse, p.sinks[head]);
    if (p.lse != nullptr) p.lse[token * p.lse_token_stride + head * p.lse_head_stride] = lse;
    store(p.o, token * p.o.token_stride + head * p.o.head_stride, sums, factor, dims);
  }
}

}  // namespace attune::kernels::merge_states
