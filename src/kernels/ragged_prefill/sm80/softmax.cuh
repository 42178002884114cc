// Logits of a tile to weights: scale, options, mask, running maximum.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ragged_prefill/sm80/sight.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

/// Rows are rescaled once their maximum has grown by this much in base 2: weights stay below 2^8.
inline constexpr float kSlack = 8.0f;

template <class Policy>
class Softmax {
  using F = Fragments<Policy>;
  using Logits = typename F::Logits;
  using State = typename F::State;
  static constexpr int kRowBlocks = F::kRowBlocks;
  static constexpr int kKeyBlocks = F::kKeyBlocks;
  static constexpr int kDimBlocks = F::kDimBlocks;

 public:
  __device__ Softmax(const Work& work, const Sight<Policy>& sight)
      : work_(work), sight_(sight), scale_log2_(work.p.scale_log2) {
    if (work.p.k_scale_per_head != nullptr) scale_log2_ *= work.p.k_scale_per_head[work.kv_head];
  }

  /// Logits of a tile to weights, and what the rows know of themselves.
  __device__ void soften(int first, Logits& s, State& state) const {
    // Weights are 2^(factor * s - shift).
    float factor = scale_log2_;
    const bool open = sight_.is_open(first);
    if (is_bent() || !open) {
      settle(first, s, open);
      factor = 1.0f;
    }
    float top[kRowBlocks][2];
    bool grows = false;
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        top[m][i] = fmaxf(s[m][0][2 * i], s[m][0][2 * i + 1]);
#pragma unroll
        for (int b = 1; b < kKeyBlocks; ++b)
          top[m][i] = fmaxf(top[m][i], fmaxf(s[m][b][2 * i], s[m][b][2 * i + 1]));
        top[m][i] *= factor;
        grows = grows || top[m][i] > state.maximum[m][i] + kSlack;
      }
    if (__any_sync(kAllLanes, grows)) raise(top, state);
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float shift = state.maximum[m][i] == -INFINITY ? 0.0f : state.maximum[m][i];
#pragma unroll
        for (int b = 0; b < kKeyBlocks; ++b)
#pragma unroll
          for (int e = 2 * i; e < 2 * i + 2; ++e) {
            s[m][b][e] = ptx::exp2_approx(fmaf(s[m][b][e], factor, -shift));
            state.sum[m][i] += s[m][b][e];
          }
      }
  }

 private:
  /// Rows take the maximum of what they have seen; o and sum follow.
  __device__ void raise(const float (&top)[kRowBlocks][2], State& state) const {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float after = fmaxf(top[m][i], __shfl_xor_sync(kAllLanes, top[m][i], 1));
        after = fmaxf(after, __shfl_xor_sync(kAllLanes, after, 2));
        after = fmaxf(after, state.maximum[m][i]);
        const float shift = after == -INFINITY ? 0.0f : after;
        const float factor = ptx::exp2_approx(state.maximum[m][i] - shift);
        state.maximum[m][i] = after;
        state.sum[m][i] *= factor;
#pragma unroll
        for (int d = 0; d < kDimBlocks; ++d) {
          state.o[m][d][2 * i] *= factor;
          state.o[m][d][2 * i + 1] *= factor;
        }
      }
  }

  /// Whether logits are more than scaled products. A negative scale would turn the maximum around.
  __device__ bool is_bent() const {
    return work_.p.soft_cap_log2 > 0.0f || work_.p.alibi_slopes != nullptr ||
           work_.p.xai_temperature_len > 0 || scale_log2_ < 0.0f;
  }

  /// The general way to the logits: scaled, bent, unseen ones -inf.
  __device__ void settle(int first, Logits& s, bool open) const {
    const auto each_row = [&](auto&& visit) {
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i) visit(m, i, 16 * m + 8 * i + work_.lane / 4);
    };
    const auto each_logit = [&](int m, int i, auto&& change) {
#pragma unroll
      for (int b = 0; b < kKeyBlocks; ++b)
#pragma unroll
        for (int e = 0; e < 2; ++e) s[m][b][2 * i + e] = change(s[m][b][2 * i + e], 8 * b + e);
    };
    each_row([&](int m, int i, int) {
      each_logit(m, i, [&](float x, int) { return x * scale_log2_; });
    });
    if (work_.p.soft_cap_log2 > 0.0f) {
      // cap * tanh(x / cap), with tanh(y) = 1 - 2 / (1 + e^2y); both saturate correctly.
      const float cap = work_.p.soft_cap_log2;
      each_row([&](int m, int i, int) {
        each_logit(m, i, [&](float x, int) {
          const float e = ptx::exp2_approx(x * (2.0f * kLog2E / cap));
          return cap * (1.0f - __fdividef(2.0f, 1.0f + e));
        });
      });
    }
    if (work_.p.xai_temperature_len > 0) {
      const float own = sight_.own_row().temperature;
      each_row([&](int m, int i, int owner) {
        const float temperature = __shfl_sync(kAllLanes, own, owner);
        each_logit(m, i, [&](float x, int) { return x * temperature; });
      });
    }
    if (work_.p.alibi_slopes != nullptr) {
      const Row own = sight_.own_row();
      each_row([&](int m, int i, int owner) {
        const float slope = __shfl_sync(kAllLanes, own.slope_log2, owner);
        const int position = __shfl_sync(kAllLanes, own.position, owner);
        const auto from = static_cast<float>(position - first - 2 * (work_.lane % 4));
        each_logit(m, i, [&](float x, int key) {
          return fmaf(-slope, fabsf(from - static_cast<float>(key)), x);
        });
      });
    }
    if (open) return;
    const std::uint64_t own = sight_.visible_keys(first);
    each_row([&](int m, int i, int owner) {
      const std::uint64_t bits =
          __shfl_sync(kAllLanes, static_cast<unsigned long long>(own), owner) >>
          (2 * (work_.lane % 4));
      const auto low = static_cast<std::uint32_t>(bits);
      const auto high = static_cast<std::uint32_t>(bits >> 32);
      each_logit(m, i, [&](float x, int key) {
        return ((key < 32 ? low : high) >> (key % 32) & 1) != 0 ? x : -INFINITY;
      });
    });
  }

  const Work& work_;
  const Sight<Policy>& sight_;
  float scale_log2_;
};

}  // namespace attune::kernels::ragged_prefill::sm80
