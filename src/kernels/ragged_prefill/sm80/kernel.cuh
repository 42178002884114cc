// The plain-mma prefill kernel: FlashAttention-2's schedule (arXiv:2307.08691) on the warp-wide
// product of sm_80. It honours every option and any page size; short query blocks split their keys
// over CTAs (flash decoding). docs/performance/cuda-prefill.md, "Plain mma", says why it is as it
// is.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <climits>
#include <type_traits>

#include "kernels/ptx/atomic.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ragged_prefill/sm80/key_ring.cuh"
#include "kernels/ragged_prefill/sm80/params.hpp"
#include "kernels/ragged_prefill/sm80/policy.hpp"

namespace attune::kernels::ragged_prefill::sm80 {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;
inline constexpr unsigned kAllLanes = 0xffffffffu;
/// Rows are rescaled once their maximum has grown by this much in base 2: weights stay below 2^8.
inline constexpr float kSlack = 8.0f;

template <class Kv>
inline constexpr bool kIsFp8 = sizeof(Kv) == 1;
/// What the products are made in: fp8 keys and values become fp16 exactly.
template <class Kv>
using Compute = std::conditional_t<kIsFp8<Kv>, __half, Kv>;

/// A query token and head, and what it sees.
struct Row {
  bool valid = false;
  int token = 0;  ///< counted from the item's first
  int head = 0;   ///< query head
  int begin = 0;  ///< visible keys of the item, counted from the page table's first
  int end = 0;
  int position = 0;  ///< counted alike
  float temperature = 1.0f;
  float slope_log2 = 0.0f;
};

template <class Kv, class Policy>
class PrefillKernel {
 public:
  using T = Compute<Kv>;
  using Queries = typename Policy::Queries;
  using Keys = typename Policy::Keys;
  using Values = typename Policy::Values;
  static constexpr int kKeyTile = Policy::kKeyTile;
  static constexpr int kRowBlocks = Policy::kWarpRows / 16;
  static constexpr int kSteps = Policy::kDimQk / 16;
  static constexpr int kKeyBlocks = kKeyTile / 8;
  static constexpr int kDimBlocks = Policy::kDimVo / 8;

  __device__ PrefillKernel(const Params& p, std::uint8_t* shared)
      : p_(p),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        queries_(shared),
        ring_(p, shared + Policy::kQueryBytes) {}

  __device__ void run() {
    const int total = p_.work->num_items * p_.num_kv_heads;
    const int grid = static_cast<int>(gridDim.x);
    // The costliest come first; every other round goes backwards, so that CTAs get equal sums.
    bool backwards = false;
#pragma unroll 1
    for (int round = 0; round < total; round += grid, backwards = !backwards) {
      const int i = round + static_cast<int>(backwards ? grid - 1 - blockIdx.x : blockIdx.x);
      if (i >= total) continue;
      item_ = p_.items + i / p_.num_kv_heads;
      kv_head_ = i % p_.num_kv_heads;
      take_item();
    }
  }

 private:
  /// The state of a warp's rows: o, and the two rows a lane has of each block of sixteen.
  struct State {
    float o[kRowBlocks][kDimBlocks][4];
    float maximum[kRowBlocks][2];  ///< in base 2; lags behind by kSlack at most
    float sum[kRowBlocks][2];
  };
  using Logits = float[kRowBlocks][kKeyBlocks][4];

  __device__ int fragment_row(int m, int i) const {
    return warp_ * Policy::kWarpRows + 16 * m + 8 * i + lane_ / 4;
  }

  __device__ Row row_of(int row_of_block) const {
    const attention::PrefillItem& item = *item_;
    Row r;
    const int packed = item.row_begin + row_of_block;
    r.token = static_cast<int>(base::divide(static_cast<std::uint32_t>(packed), p_.group));
    r.head = kv_head_ * p_.gqa_group_size + packed - r.token * p_.gqa_group_size;
    r.valid = r.token < item.qo_len;
    if (item.shared != 0) {
      const attention::TokenRule rule = p_.rules[item.q_row + (r.valid ? r.token : 0)];
      r.begin = rule.begin;
      r.end = rule.end;
      r.position = rule.position;
      r.temperature = rule.temperature;
    } else {
      r.position = item.kv_len - item.qo_len + r.token;
      const std::int64_t position = item.first_position + r.position;
      const attention::KeyRange keys = attention::visible_range(
          p_.rule, position, item.first_position, item.first_position + item.kv_len);
      r.begin = static_cast<int>(keys.begin - item.first_position);
      r.end = static_cast<int>(keys.end - item.first_position);
      if (p_.xai_temperature_len > 0 && position > p_.xai_temperature_len)
        r.temperature = __log2f(static_cast<float>(position)) /
                        __log2f(static_cast<float>(p_.xai_temperature_len));
    }
    r.begin = max(r.begin, item.kv_begin);
    r.end = r.valid ? min(r.end, item.kv_end) : r.begin;
    if (p_.alibi_slopes != nullptr && r.valid) r.slope_log2 = p_.alibi_slopes[r.head] * kLog2E;
    return r;
  }

  /// The row of the warp that this lane keeps the bounds of.
  __device__ Row own_row() const {
    return row_of(warp_ * Policy::kWarpRows + lane_ % Policy::kWarpRows);
  }

  __device__ void take_item() {
    kv_end_ = item_->kv_end;
    scale_log2_ = p_.scale_log2;
    if (p_.k_scale_per_head != nullptr) scale_log2_ *= p_.k_scale_per_head[kv_head_];
    const int kv_begin = item_->kv_begin;

    // Nothing is copied for an item without keys, so that no copy meets another on its way.
    if (kv_begin < kv_end_) {
      // Queries of the item before are still being read.
      __syncthreads();
      copy_queries();
      ring_.begin(*item_, kv_head_);
#pragma unroll
      for (int tile = 0; tile < KeyRing<Policy>::kAhead; ++tile) ring_.copy_next();
    }
    bound_rows();
    State state;
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int d = 0; d < kDimBlocks; ++d)
#pragma unroll
        for (int e = 0; e < 4; ++e) state.o[m][d][e] = 0.0f;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        state.maximum[m][i] = -INFINITY;
        state.sum[m][i] = 0.0f;
      }
    }
#pragma unroll 1
    for (int first = kv_begin; first < kv_end_; first += kKeyTile) {
      const std::uint8_t* keys = ring_.take();
      ring_.copy_next();
      if (kIsFp8<Kv> && first == kv_begin) convert_queries();
      if (first >= seen_end_ || first + kKeyTile <= seen_begin_) continue;
      Logits s;
      products(keys, s);
      soften(first, s, state);
      accumulate(keys + Policy::kKeyBytes, s, state);
    }
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        state.sum[m][i] += __shfl_xor_sync(kAllLanes, state.sum[m][i], 1);
        state.sum[m][i] += __shfl_xor_sync(kAllLanes, state.sum[m][i], 2);
      }
    if (item_->parts == 1) {
      write(state);
    } else {
      keep_part(state);
      if (arrives_last()) join(state);
    }
  }

  __device__ void copy_queries() {
    using S = CopyShape<Queries, Policy::kRows, Policy::kThreads>;
    const int unit = threadIdx.x % S::kColumns;
    const int first = threadIdx.x / S::kColumns;
    if (S::kColumns != Queries::kUnits && unit >= Queries::kUnits) return;
    const bool in_row = !Policy::kPadded || unit * 16 < p_.head_dim_qk * 2;
#pragma unroll 4
    for (int row = first; row < Policy::kRows; row += S::kRowsAtOnce) {
      const int packed = item_->row_begin + row;
      const auto token =
          static_cast<int>(base::divide(static_cast<std::uint32_t>(packed), p_.group));
      const int head = kv_head_ * p_.gqa_group_size + packed - token * p_.gqa_group_size;
      const bool valid = token < item_->qo_len && in_row;
      const std::int64_t from =
          (item_->q_row + static_cast<std::int64_t>(valid ? token : 0)) * p_.q_token_stride +
          (valid ? head : 0) * p_.q_head_stride;
      ptx::cp_async_16(queries_ + row * Queries::kBytes + (unit ^ Queries::mix(row)) * 16,
                       static_cast<const char*>(p_.q) + 2 * from + unit * 16, valid);
    }
  }

  /// bf16 queries of fp8 keys become fp16; each warp's its own.
  __device__ void convert_queries() {
    if (p_.q_element != Element::bf16) return;
    constexpr int kPairs = Policy::kWarpRows * Policy::kDimQk / 2;
    auto* pairs = reinterpret_cast<std::uint32_t*>(queries_) + warp_ * kPairs;
    for (int at = lane_; at < kPairs; at += 32) {
      // Beyond fp16's range a query saturates.
      const float low = fminf(fmaxf(__uint_as_float(pairs[at] << 16), -65504.0f), 65504.0f);
      const float high =
          fminf(fmaxf(__uint_as_float(pairs[at] & 0xffff0000u), -65504.0f), 65504.0f);
      pairs[at] = ptx::pack_pair<__half>(low, high);
    }
    __syncwarp();
  }

  /// What the lane's own row sees; what all rows of the warp see (open) and what any of them does.
  __device__ void bound_rows() {
    const Row own = own_row();
    row_begin_ = own.begin;
    row_end_ = own.end;
    const bool empty = own.begin >= own.end;
    int least_begin = empty ? INT_MAX : own.begin;
    int most_end = empty ? INT_MIN : own.end;
    int most_begin = own.valid ? own.begin : INT_MIN;
    int least_end = own.valid ? own.end : INT_MAX;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
      least_begin = min(least_begin, __shfl_xor_sync(kAllLanes, least_begin, apart));
      most_end = max(most_end, __shfl_xor_sync(kAllLanes, most_end, apart));
      most_begin = max(most_begin, __shfl_xor_sync(kAllLanes, most_begin, apart));
      least_end = min(least_end, __shfl_xor_sync(kAllLanes, least_end, apart));
    }
    seen_begin_ = least_begin;
    seen_end_ = most_end;
    open_begin_ = most_begin;
    open_end_ = item_->mask_begin >= 0 ? INT_MIN : least_end;
  }

  /// Bit k: the lane's own row sees key first + k.
  __device__ std::uint64_t visible_keys(int first) const {
    const int begin = max(row_begin_ - first, 0);
    const int end = min(row_end_ - first, kKeyTile);
    if (begin >= end) return 0;
    std::uint64_t bits = ~std::uint64_t{0} >> (64 - (end - begin)) << begin;
    if (item_->mask_begin >= 0) bits &= mask_bits(first, end);
    return bits;
  }

  /// The request's mask for the lane's row and keys first … first + count - 1; other bits are any.
  __device__ std::uint64_t mask_bits(int first, int count) const {
    const auto token = static_cast<std::int64_t>(own_row().token);
    const std::int64_t bit = token * item_->kv_len + first;
    const int shift = static_cast<int>(bit % 8);
    const std::uint8_t* bytes = p_.custom_mask + item_->mask_begin + bit / 8;
    std::uint64_t bits = 0;
#pragma unroll
    for (int i = 0; i < 9; ++i) {
      const std::uint64_t byte = 8 * i < shift + count ? __ldg(bytes + i) : 0;
      bits |= 8 * i >= shift ? byte << (8 * i - shift) : byte >> (shift - 8 * i);
    }
    return bits;
  }

  /// Logits of a tile to weights, and what the rows know of themselves.
  __device__ void soften(int first, Logits& s, State& state) const {
    // Weights are 2^(factor * s - shift).
    float factor = scale_log2_;
    const bool open = open_begin_ <= first && open_end_ >= first + kKeyTile;
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
    return p_.soft_cap_log2 > 0.0f || p_.alibi_slopes != nullptr || p_.xai_temperature_len > 0 ||
           scale_log2_ < 0.0f;
  }

  /// The general way to the logits: scaled, bent, unseen ones -inf.
  __device__ void settle(int first, Logits& s, bool open) const {
    const auto each_row = [&](auto&& visit) {
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i) visit(m, i, 16 * m + 8 * i + lane_ / 4);
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
    if (p_.soft_cap_log2 > 0.0f) {
      // cap * tanh(x / cap), with tanh(y) = 1 - 2 / (1 + e^2y); both saturate correctly.
      const float cap = p_.soft_cap_log2;
      each_row([&](int m, int i, int) {
        each_logit(m, i, [&](float x, int) {
          const float e = ptx::exp2_approx(x * (2.0f * kLog2E / cap));
          return cap * (1.0f - __fdividef(2.0f, 1.0f + e));
        });
      });
    }
    if (p_.xai_temperature_len > 0) {
      const float own = own_row().temperature;
      each_row([&](int m, int i, int owner) {
        const float temperature = __shfl_sync(kAllLanes, own, owner);
        each_logit(m, i, [&](float x, int) { return x * temperature; });
      });
    }
    if (p_.alibi_slopes != nullptr) {
      const Row own = own_row();
      each_row([&](int m, int i, int owner) {
        const float slope = __shfl_sync(kAllLanes, own.slope_log2, owner);
        const int position = __shfl_sync(kAllLanes, own.position, owner);
        const auto from = static_cast<float>(position - first - 2 * (lane_ % 4));
        each_logit(m, i, [&](float x, int key) {
          return fmaf(-slope, fabsf(from - static_cast<float>(key)), x);
        });
      });
    }
    if (open) return;
    const std::uint64_t own = visible_keys(first);
    each_row([&](int m, int i, int owner) {
      const std::uint64_t bits =
          __shfl_sync(kAllLanes, static_cast<unsigned long long>(own), owner) >> (2 * (lane_ % 4));
      const auto low = static_cast<std::uint32_t>(bits);
      const auto high = static_cast<std::uint32_t>(bits >> 32);
      each_logit(m, i, [&](float x, int key) {
        return ((key < 32 ? low : high) >> (key % 32) & 1) != 0 ? x : -INFINITY;
      });
    });
  }

  /// Where ldmatrix finds unit `unit` of rows whose address holds their swizzle already.
  template <class Rows>
  static __device__ std::uint32_t unit_at(std::uint32_t row, int unit) {
    constexpr int kLow = Rows::kGroup - 1;
    return (row ^ (unit & kLow) * 16) + (unit & ~kLow) * 16;
  }
  template <class Rows>
  static __device__ std::uint32_t row_at(const std::uint8_t* tile, int row, int unit) {
    return ptx::shared_address(tile) + row * Rows::kBytes + (unit ^ Rows::mix(row)) * 16;
  }

  /// s = Q K^T of the warp's rows. A block of keys serves all of them.
  __device__ void products(const std::uint8_t* keys, Logits& s) const {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int b = 0; b < kKeyBlocks; ++b)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[m][b][e] = 0.0f;
    if constexpr (kIsFp8<Kv>) {
      // The order of dims within a step is free as long as keys use the same: fp8 keys come four
      // to a lane.
      const int row = warp_ * Policy::kWarpRows + lane_ / 4;
      const std::uint8_t* own_row = queries_ + row * Queries::kBytes + lane_ % 2 * 8;
      const std::uint32_t blocks = row_at<Keys>(keys, lane_, 0);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        std::uint32_t a[kRowBlocks][4];
        const int unit = (2 * step + lane_ % 4 / 2) ^ Queries::mix(row);
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m) {
          const std::uint8_t* at = own_row + 16 * m * Queries::kBytes + unit * 16;
          const auto low = *reinterpret_cast<const uint2*>(at);
          const auto high = *reinterpret_cast<const uint2*>(at + 8 * Queries::kBytes);
          a[m][0] = low.x;
          a[m][1] = high.x;
          a[m][2] = low.y;
          a[m][3] = high.y;
        }
#pragma unroll
        for (int b = 0; b < kKeyBlocks; b += 4) {
          // Four blocks of eight keys, sixteen dims each.
          std::uint32_t raw[4];
          ptx::ldmatrix_x4(raw, unit_at<Keys>(blocks, step) + 8 * b * Keys::kBytes);
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const std::uint32_t low = ptx::widen_fp8<Kv>(raw[n]);
            const std::uint32_t high = ptx::widen_fp8<Kv>(raw[n] >> 16);
#pragma unroll
            for (int m = 0; m < kRowBlocks; ++m) ptx::mma_16x8x16<T>(s[m][b + n], a[m], low, high);
          }
        }
      }
    } else {
      // The next fragments are on their way while these are multiplied.
      const std::uint32_t rows =
          row_at<Queries>(queries_, warp_ * Policy::kWarpRows + lane_ % 16, lane_ / 16);
      const std::uint32_t blocks = row_at<Keys>(keys, lane_ % 8 + lane_ / 16 * 8, lane_ / 8 % 2);
      constexpr int kPairs = kKeyBlocks / 2;
      std::uint32_t a[2][kRowBlocks][4];
      std::uint32_t k[2][4];
      const auto load_rows = [&](int step) {
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m)
          ptx::ldmatrix_x4(a[step % 2][m],
                           unit_at<Queries>(rows, 2 * step) + 16 * m * Queries::kBytes);
      };
      const auto load_keys = [&](int n) {
        ptx::ldmatrix_x4(
            k[n % 2], unit_at<Keys>(blocks, 2 * (n / kPairs)) + 16 * (n % kPairs) * Keys::kBytes);
      };
      load_rows(0);
      load_keys(0);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (step + 1 < kSteps) load_rows(step + 1);
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
          const int n = step * kPairs + pair;
          if (n + 1 < kSteps * kPairs) load_keys(n + 1);
#pragma unroll
          for (int m = 0; m < kRowBlocks; ++m) {
            ptx::mma_16x8x16<T>(s[m][2 * pair], a[step % 2][m], k[n % 2][0], k[n % 2][1]);
            ptx::mma_16x8x16<T>(s[m][2 * pair + 1], a[step % 2][m], k[n % 2][2], k[n % 2][3]);
          }
        }
      }
    }
  }

  /// o += P V; the accumulators of one product, packed, are the A operand of the next.
  __device__ void accumulate(const std::uint8_t* values, const Logits& s, State& state) const {
    const std::uint32_t rows = row_at<Values>(values, lane_ % 16, lane_ / 16);
    [[maybe_unused]] std::uint32_t v[2][4];
#pragma unroll
    for (int t = 0; t < kKeyTile / 16; ++t) {
      std::uint32_t a[kRowBlocks][4];
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&pair)[4] = s[m][2 * t + i / 2];
          a[m][i] = ptx::pack_pair<T>(pair[2 * (i % 2)], pair[2 * (i % 2) + 1]);
        }
      const std::uint32_t block = rows + 16 * t * Values::kBytes;
      if constexpr (kIsFp8<Kv>) {
        static_assert(Policy::kDimVo % 32 == 0);
#pragma unroll
        for (int u = 0; u < Policy::kDimVo / 16; u += 2) {
          // Sixteen dims a unit: the even ones make one block of eight, the odd ones the next.
          std::uint32_t raw[4];
          ptx::ldmatrix_x4_trans(raw, unit_at<Values>(block, u));
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const std::uint32_t low = __byte_perm(raw[2 * half], 0, 0x3120);
            const std::uint32_t high = __byte_perm(raw[2 * half + 1], 0, 0x3120);
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
              const std::uint32_t v0 = ptx::widen_fp8<Kv>(low >> 16 * odd);
              const std::uint32_t v1 = ptx::widen_fp8<Kv>(high >> 16 * odd);
#pragma unroll
              for (int m = 0; m < kRowBlocks; ++m)
                ptx::mma_16x8x16<T>(state.o[m][2 * (u + half) + odd], a[m], v0, v1);
            }
          }
        }
      } else {
        constexpr int kPairs = kDimBlocks / 2;
        constexpr int kLast = kKeyTile / 16 * kPairs - 1;
        const auto load_values = [&](int n) {
          ptx::ldmatrix_x4_trans(v[n % 2], unit_at<Values>(rows, 2 * (n % kPairs)) +
                                               16 * (n / kPairs) * Values::kBytes);
        };
        if (t == 0) load_values(0);
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
          const int n = t * kPairs + pair;
          if (n < kLast) load_values(n + 1);
#pragma unroll
          for (int m = 0; m < kRowBlocks; ++m) {
            ptx::mma_16x8x16<T>(state.o[m][2 * pair], a[m], v[n % 2][0], v[n % 2][1]);
            ptx::mma_16x8x16<T>(state.o[m][2 * pair + 1], a[m], v[n % 2][2], v[n % 2][3]);
          }
        }
      }
    }
  }

  /// Dims of the pair that the lane holds in o[d] and, for fp8, in o[d + 1] as well: (first, step).
  __device__ int dim_of(int d, int e) const {
    if constexpr (kIsFp8<Kv>) return 16 * (d / 2) + 4 * (lane_ % 4) + 2 * e + d % 2;
    return 8 * d + 2 * (lane_ % 4) + e;
  }

  __device__ void write(const State& state) const {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        write_row(state.o[m], i, state.maximum[m][i], state.sum[m][i], row_of(fragment_row(m, i)));
  }

  __device__ void write_row(const float (&o)[kDimBlocks][4], int i, float maximum, float sum,
                            const Row& r) const {
    if (!r.valid) return;
    float factor = 0.0f;
    float lse = -INFINITY;
    if (sum > 0.0f) {
      lse = (maximum + __log2f(sum)) * kLn2;
      factor = __fdividef(p_.v_scale, sum);
      if (p_.v_scale_per_head != nullptr) factor *= p_.v_scale_per_head[kv_head_];
      if (p_.sinks != nullptr)
        factor = __fdividef(factor, 1.0f + ptx::exp2_approx((p_.sinks[r.head] - lse) * kLog2E));
    }
    const std::int64_t token = static_cast<std::int64_t>(item_->o_row) + r.token;
    const std::int64_t at = token * p_.o_token_stride + r.head * p_.o_head_stride;
#pragma unroll
    for (int d = 0; d < kDimBlocks; d += kIsFp8<Kv> ? 2 : 1) {
#pragma unroll
      for (int e = 0; e < (kIsFp8<Kv> ? 2 : 1); ++e) {
        const float low = factor * o[d][2 * i + (kIsFp8<Kv> ? e : 0)];
        const float high = factor * (kIsFp8<Kv> ? o[d + 1][2 * i + e] : o[d][2 * i + 1]);
        if (!Policy::kPadded || dim_of(d, e) < p_.head_dim_vo)
          store_pair(at + dim_of(d, e), low, high);
      }
    }
    if (lane_ % 4 == 0 && p_.lse != nullptr)
      p_.lse[token * p_.lse_token_stride + r.head * p_.lse_head_stride] = lse;
  }

  __device__ void store_pair(std::int64_t at, float low, float high) const {
    if (p_.o_element == Element::f32)
      *reinterpret_cast<float2*>(static_cast<float*>(p_.o) + at) = make_float2(low, high);
    else
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(p_.o) + at) =
          p_.o_element == Element::bf16 ? ptx::pack_pair<__nv_bfloat16>(low, high)
                                        : ptx::pack_pair<__half>(low, high);
  }

  /// Place of part `part`'s row of the block.
  __device__ std::int64_t partial_row(int part, int row) const {
    const std::int64_t place =
        static_cast<std::int64_t>(item_->first_place + part) * p_.num_kv_heads + kv_head_;
    return place * Policy::kRows + row;
  }

  __device__ void keep_part(const State& state) const {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::int64_t row = partial_row(item_->part, fragment_row(m, i));
        if (lane_ % 4 == 0)
          p_.partial_state[row] = make_float2(state.maximum[m][i], state.sum[m][i]);
          // The order of a row's numbers is the fragments', the same for every part.
#pragma unroll
        for (int d = 0; d < kDimBlocks; ++d)
          *reinterpret_cast<float2*>(p_.partial_o + row * Policy::kDimVo + 8 * d +
                                     2 * (lane_ % 4)) =
              make_float2(state.o[m][d][2 * i], state.o[m][d][2 * i + 1]);
      }
  }

  __device__ bool arrives_last() {
    __shared__ int is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
      std::int32_t* counter =
          p_.arrivals + static_cast<std::int64_t>(item_->first_place) * p_.num_kv_heads + kv_head_;
      const std::int32_t before = ptx::arrive_at(counter);
      is_last = before == item_->parts - 1 ? 1 : 0;
      if (is_last != 0) *counter = 0;
    }
    __syncthreads();
    return is_last != 0;
  }

  /// All parts in order, so that the bits do not depend on who came last.
  __device__ void join(State& state) const {
    const int parts = item_->parts;
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row_of_block = fragment_row(m, i);
        float top = -INFINITY;
        for (int part = 0; part < parts; ++part)
          top = fmaxf(top, __ldcg(p_.partial_state + partial_row(part, row_of_block)).x);
        const float shift = top == -INFINITY ? 0.0f : top;
        state.maximum[m][i] = top;
        state.sum[m][i] = 0.0f;
#pragma unroll
        for (int d = 0; d < kDimBlocks; ++d) state.o[m][d][2 * i] = state.o[m][d][2 * i + 1] = 0.0f;
        for (int part = 0; part < parts; ++part) {
          const std::int64_t row = partial_row(part, row_of_block);
          const float2 kept = __ldcg(p_.partial_state + row);
          const float weight = ptx::exp2_approx(kept.x - shift);
          state.sum[m][i] += weight * kept.y;
#pragma unroll
          for (int d = 0; d < kDimBlocks; ++d) {
            const float2 v = __ldcg(reinterpret_cast<const float2*>(
                p_.partial_o + row * Policy::kDimVo + 8 * d + 2 * (lane_ % 4)));
            state.o[m][d][2 * i] += weight * v.x;
            state.o[m][d][2 * i + 1] += weight * v.y;
          }
        }
      }
    write(state);
  }

  const Params& p_;
  int warp_;
  int lane_;
  std::uint8_t* queries_;
  KeyRing<Policy> ring_;
  const attention::PrefillItem* item_ = nullptr;
  int kv_head_ = 0;
  int kv_end_ = 0;
  float scale_log2_ = 0.0f;
  int row_begin_ = 0;  ///< keys that the lane's own row sees
  int row_end_ = 0;
  int seen_begin_ = 0;  ///< keys that any row of the warp sees lie in between
  int seen_end_ = 0;
  int open_begin_ = 0;  ///< keys that all of them see
  int open_end_ = 0;
};

template <class Kv, class Policy>
__global__ void __launch_bounds__(Policy::kThreads, Policy::kCtas)
    ragged_prefill_kernel(const __grid_constant__ Params p) {
  PrefillKernel<Kv, Policy>(p, ptx::dynamic_shared<128>()).run();
}

}  // namespace attune::kernels::ragged_prefill::sm80
