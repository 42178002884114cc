// The general prefill kernel: FlashAttention-2's schedule (arXiv:2307.08691) on the warp-wide
// product of sm_80. Sixteen rows a warp; keys and values pass through two shared stages. It honours
// every option and any page size; short query blocks split their keys over CTAs (flash decoding).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/ptx/atomic.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ragged_prefill/sm80/params.hpp"
#include "kernels/ragged_prefill/sm80/policy.hpp"

namespace attune::kernels::ragged_prefill::sm80 {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

template <class Kv>
inline constexpr bool kIsFp8 = sizeof(Kv) == 1;
/// What the products are made in: fp8 keys and values become fp16 exactly.
template <class Kv>
using Compute = std::conditional_t<kIsFp8<Kv>, __half, Kv>;

/// One of the lane's two rows.
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
  static constexpr int kSteps = Policy::kDimQk / 16;
  static constexpr int kKeyBlocks = Policy::kKeyTile / 8;
  static constexpr int kDimBlocks = Policy::kDimVo / 8;

  __device__ PrefillKernel(const Params& p, std::uint8_t* shared)
      : p_(p),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        queries_(shared),
        stages_(shared + Policy::kRows * Policy::kQueryStride) {}

  __device__ void run() {
    const int total = p_.work->num_items * p_.num_kv_heads;
    for (int i = static_cast<int>(blockIdx.x); i < total; i += static_cast<int>(gridDim.x)) {
      const int item = i / p_.num_kv_heads;
      item_ = p_.items[item];
      kv_head_ = i - item * p_.num_kv_heads;
      take_item();
      __syncthreads();
    }
  }

 private:
  __device__ Row row_of(int row_of_block) const {
    Row r;
    const int packed = item_.row_begin + row_of_block;
    r.token = packed / p_.gqa_group_size;
    r.head = kv_head_ * p_.gqa_group_size + packed - r.token * p_.gqa_group_size;
    r.valid = r.token < item_.qo_len;
    if (item_.shared != 0) {
      const attention::TokenRule rule = p_.rules[item_.q_row + (r.valid ? r.token : 0)];
      r.begin = rule.begin;
      r.end = rule.end;
      r.position = rule.position;
      r.temperature = rule.temperature;
    } else {
      r.position = item_.kv_len - item_.qo_len + r.token;
      const std::int64_t position = item_.first_position + r.position;
      const attention::KeyRange keys = attention::visible_range(
          p_.rule, position, item_.first_position, item_.first_position + item_.kv_len);
      r.begin = static_cast<int>(keys.begin - item_.first_position);
      r.end = static_cast<int>(keys.end - item_.first_position);
      if (p_.xai_temperature_len > 0 && position > p_.xai_temperature_len)
        r.temperature = __log2f(static_cast<float>(position)) /
                        __log2f(static_cast<float>(p_.xai_temperature_len));
    }
    r.begin = max(r.begin, item_.kv_begin);
    r.end = r.valid ? min(r.end, item_.kv_end) : r.begin;
    if (p_.alibi_slopes != nullptr && r.valid) r.slope_log2 = p_.alibi_slopes[r.head] * kLog2E;
    return r;
  }

  __device__ void take_item() {
    copy_queries();
    copy_tile(item_.kv_begin, 0);
    ptx::cp_async_commit();

    const int g = lane_ / 4;
    rows_[0] = row_of(16 * warp_ + g);
    rows_[1] = row_of(16 * warp_ + g + 8);
    float o[kDimBlocks][4];
#pragma unroll
    for (int d = 0; d < kDimBlocks; ++d)
#pragma unroll
      for (int e = 0; e < 4; ++e) o[d][e] = 0.0f;
    float maximum[2] = {-INFINITY, -INFINITY};
    float sum[2] = {0.0f, 0.0f};
    scale_log2_ = p_.scale_log2;
    if (p_.k_scale_per_head != nullptr) scale_log2_ *= p_.k_scale_per_head[kv_head_];

    int stage = 0;
    for (int first = item_.kv_begin; first < item_.kv_end; first += Policy::kKeyTile) {
      if (first + Policy::kKeyTile < item_.kv_end) copy_tile(first + Policy::kKeyTile, stage ^ 1);
      ptx::cp_async_commit();
      ptx::cp_async_wait<1>();
      __syncthreads();
      if constexpr (kIsFp8<Kv>) {
        if (first == item_.kv_begin) {
          convert_queries();
          __syncthreads();
        }
      }
      take_tile(first, stages_ + stage * Policy::kStageBytes, o, maximum, sum);
      __syncthreads();
      stage ^= 1;
    }
    ptx::cp_async_wait<0>();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1);
      sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2);
    }
    if (item_.parts == 1) {
      write(o, maximum, sum);
    } else {
      keep_part(o, maximum, sum);
      if (arrives_last()) join(o, maximum, sum);
    }
  }

  __device__ void copy_queries() {
    constexpr int kUnits = Policy::kDimQk * 2 / 16;
    for (int unit = threadIdx.x; unit < Policy::kRows * kUnits; unit += Policy::kThreads) {
      const int row = unit / kUnits;
      const int at = unit % kUnits * 16;
      const int packed = item_.row_begin + row;
      const int token = packed / p_.gqa_group_size;
      const int head = kv_head_ * p_.gqa_group_size + packed - token * p_.gqa_group_size;
      const bool valid = token < item_.qo_len && (!Policy::kPadded || at < p_.head_dim_qk * 2);
      const std::int64_t from =
          (item_.q_row + static_cast<std::int64_t>(valid ? token : 0)) * p_.q_token_stride +
          (valid ? head : 0) * p_.q_head_stride;
      ptx::cp_async_16(queries_ + row * Policy::kQueryStride + at,
                       static_cast<const char*>(p_.q) + 2 * from + at, valid);
    }
  }

  /// bf16 queries of fp8 keys become fp16.
  __device__ void convert_queries() {
    if (p_.q_element != Element::bf16) return;
    constexpr int kPairs = Policy::kDimQk / 2;
    for (int at = threadIdx.x; at < Policy::kRows * kPairs; at += Policy::kThreads) {
      auto* pair = reinterpret_cast<std::uint32_t*>(queries_ + at / kPairs * Policy::kQueryStride) +
                   at % kPairs;
      // Beyond fp16's range a query saturates.
      const float low = fminf(fmaxf(__uint_as_float(*pair << 16), -65504.0f), 65504.0f);
      const float high = fminf(fmaxf(__uint_as_float(*pair & 0xffff0000u), -65504.0f), 65504.0f);
      *pair = ptx::pack_pair<__half>(low, high);
    }
  }

  /// Keys and values [first, first + kKeyTile); slots beyond the request's keys become zero unread.
  __device__ void copy_tile(int first, int stage) {
    std::uint8_t* keys = stages_ + stage * Policy::kStageBytes;
    std::uint8_t* values = keys + Policy::kKeyTile * Policy::kKeyStride;
    copy_side<Policy::kKeyBytes, Policy::kKeyStride>(first, keys, p_.kv.k, p_.kv.k_page_stride,
                                                     p_.kv.k_token_stride, p_.kv.k_head_stride,
                                                     p_.head_dim_qk * Policy::kKvBytes);
    copy_side<Policy::kValueBytes, Policy::kValueStride>(
        first, values, p_.kv.v, p_.kv.v_page_stride, p_.kv.v_token_stride, p_.kv.v_head_stride,
        p_.head_dim_vo * Policy::kKvBytes);
  }

  template <int Bytes, int Stride>
  __device__ void copy_side(int first, std::uint8_t* to, const void* from, std::int64_t page_stride,
                            std::int64_t token_stride, std::int64_t head_stride, int row_bytes) {
    constexpr int kUnits = Bytes / 16;
    for (int unit = threadIdx.x; unit < Policy::kKeyTile * kUnits; unit += Policy::kThreads) {
      const int row = unit / kUnits;
      const int at = unit % kUnits * 16;
      const int token = first + row;
      const bool valid = token < item_.kv_len && (!Policy::kPadded || at < row_bytes);
      std::int64_t place = kv_head_ * head_stride;
      if (valid) {
        const int entry = token / p_.kv.page_size;
        const std::int64_t index = static_cast<std::int64_t>(item_.entry_begin) + entry;
        const std::int64_t page = p_.kv.indices != nullptr ? __ldg(p_.kv.indices + index) : index;
        place += page * page_stride + (token - entry * p_.kv.page_size) * token_stride;
      }
      ptx::cp_async_16(to + row * Stride + at,
                       static_cast<const char*>(from) + place * Policy::kKvBytes + at, valid);
    }
  }

  __device__ bool masked_bit(const Row& r, int key) const {
    const std::int64_t bit = static_cast<std::int64_t>(r.token) * item_.kv_len + key;
    return (p_.custom_mask[item_.mask_begin + bit / 8] >> (bit % 8) & 1) == 0;
  }

  __device__ float bend(float x, const Row& r, int key) const {
    if (p_.soft_cap_log2 > 0.0f) {
      // cap * tanh(x / cap), with tanh(y) = 1 - 2 / (1 + e^2y); both saturate correctly.
      const float e = ptx::exp2_approx(x * (2.0f * kLog2E / p_.soft_cap_log2));
      x = p_.soft_cap_log2 * (1.0f - __fdividef(2.0f, 1.0f + e));
    }
    x *= r.temperature;
    if (p_.alibi_slopes != nullptr) {
      const int distance = r.position - key;
      x -= r.slope_log2 * static_cast<float>(distance < 0 ? -distance : distance);
    }
    return x;
  }

  __device__ void take_tile(int first, const std::uint8_t* stage, float (&o)[kDimBlocks][4],
                            float (&maximum)[2], float (&sum)[2]) {
    float s[kKeyBlocks][4];
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[b][e] = 0.0f;
    products(stage, s);

    const bool bent =
        p_.soft_cap_log2 > 0.0f || p_.alibi_slopes != nullptr || p_.xai_temperature_len > 0;
    const bool open = item_.mask_begin < 0 && rows_[0].begin <= first && rows_[1].begin <= first &&
                      rows_[0].end >= first + Policy::kKeyTile &&
                      rows_[1].end >= first + Policy::kKeyTile;
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[b][e] *= scale_log2_;
    if (bent || !__all_sync(0xffffffffu, open)) {
#pragma unroll
      for (int b = 0; b < kKeyBlocks; ++b)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Row& r = rows_[e / 2];
          const int key = first + 8 * b + 2 * (lane_ % 4) + e % 2;
          if (bent) s[b][e] = bend(s[b][e], r, key);
          if (key < r.begin || key >= r.end || (item_.mask_begin >= 0 && masked_bit(r, key)))
            s[b][e] = -INFINITY;
        }
    }

#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float top = -INFINITY;
#pragma unroll
      for (int b = 0; b < kKeyBlocks; ++b) top = fmaxf(top, fmaxf(s[b][2 * i], s[b][2 * i + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float after = fmaxf(maximum[i], top);
      const float shift = after == -INFINITY ? 0.0f : after;
      const float factor = ptx::exp2_approx(maximum[i] - shift);
      maximum[i] = after;
      sum[i] *= factor;
#pragma unroll
      for (int d = 0; d < kDimBlocks; ++d) {
        o[d][2 * i] *= factor;
        o[d][2 * i + 1] *= factor;
      }
#pragma unroll
      for (int b = 0; b < kKeyBlocks; ++b)
#pragma unroll
        for (int e = 2 * i; e < 2 * i + 2; ++e) {
          s[b][e] = ptx::exp2_approx(s[b][e] - shift);
          sum[i] += s[b][e];
        }
    }
    accumulate(stage + Policy::kKeyTile * Policy::kKeyStride, s, o);
  }

  /// s = Q K^T of the warp's rows.
  __device__ void products(const std::uint8_t* keys, float (&s)[kKeyBlocks][4]) const {
    const std::uint32_t base = ptx::shared_address(keys);
    const std::uint32_t queries = ptx::shared_address(queries_) + 16 * warp_ * Policy::kQueryStride;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t a[4];
      if constexpr (kIsFp8<Kv>) {
        // The order of dims within a step is free as long as keys use the same: fp8 keys come four
        // to a lane.
        const std::uint8_t* at =
            queries_ + (16 * warp_ + lane_ / 4) * Policy::kQueryStride + step * 32 + lane_ % 4 * 8;
        const auto low = *reinterpret_cast<const uint2*>(at);
        const auto high = *reinterpret_cast<const uint2*>(at + 8 * Policy::kQueryStride);
        a[0] = low.x;
        a[1] = high.x;
        a[2] = low.y;
        a[3] = high.y;
#pragma unroll
        for (int b = 0; b < kKeyBlocks; b += 4) {
          // Four blocks of eight keys, sixteen dims each.
          std::uint32_t raw[4];
          ptx::ldmatrix_x4(raw, base + (8 * b + lane_) * Policy::kKeyStride + step * 16);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            ptx::mma_16x8x16<T>(s[b + i], a, ptx::widen_fp8<Kv>(raw[i]),
                                ptx::widen_fp8<Kv>(raw[i] >> 16));
        }
      } else {
        ptx::ldmatrix_x4(a,
                         queries + lane_ % 16 * Policy::kQueryStride + step * 32 + lane_ / 16 * 16);
#pragma unroll
        for (int b = 0; b < kKeyBlocks; b += 2) {
          std::uint32_t k[4];
          ptx::ldmatrix_x4(k, base + (8 * b + lane_ % 8 + lane_ / 16 * 8) * Policy::kKeyStride +
                                  step * 32 + lane_ / 8 % 2 * 16);
          ptx::mma_16x8x16<T>(s[b], a, k[0], k[1]);
          ptx::mma_16x8x16<T>(s[b + 1], a, k[2], k[3]);
        }
      }
    }
  }

  /// o += P V; the accumulators of one product, packed, are the A operand of the next.
  __device__ void accumulate(const std::uint8_t* values, const float (&s)[kKeyBlocks][4],
                             float (&o)[kDimBlocks][4]) const {
    const std::uint32_t base = ptx::shared_address(values);
#pragma unroll
    for (int t = 0; t < Policy::kKeyTile / 16; ++t) {
      const std::uint32_t a[4] = {ptx::pack_pair<T>(s[2 * t][0], s[2 * t][1]),
                                  ptx::pack_pair<T>(s[2 * t][2], s[2 * t][3]),
                                  ptx::pack_pair<T>(s[2 * t + 1][0], s[2 * t + 1][1]),
                                  ptx::pack_pair<T>(s[2 * t + 1][2], s[2 * t + 1][3])};
      const std::uint32_t block =
          base + (16 * t + lane_ % 16) * Policy::kValueStride + lane_ / 16 * 16;
      if constexpr (kIsFp8<Kv>) {
#pragma unroll
        for (int u = 0; u < Policy::kDimVo / 16; u += 2) {
          // Sixteen dims a unit: the even ones make one block of eight, the odd ones the next.
          std::uint32_t raw[4];
          ptx::ldmatrix_x4_trans(raw, block + u * 16);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (u + half >= Policy::kDimVo / 16) continue;
            const std::uint32_t low = __byte_perm(raw[2 * half], 0, 0x3120);
            const std::uint32_t high = __byte_perm(raw[2 * half + 1], 0, 0x3120);
            ptx::mma_16x8x16<T>(o[2 * (u + half)], a, ptx::widen_fp8<Kv>(low),
                                ptx::widen_fp8<Kv>(high));
            ptx::mma_16x8x16<T>(o[2 * (u + half) + 1], a, ptx::widen_fp8<Kv>(low >> 16),
                                ptx::widen_fp8<Kv>(high >> 16));
          }
        }
      } else {
#pragma unroll
        for (int d = 0; d < kDimBlocks; d += 2) {
          std::uint32_t v[4];
          ptx::ldmatrix_x4_trans(v, block + d * 16);
          ptx::mma_16x8x16<T>(o[d], a, v[0], v[1]);
          ptx::mma_16x8x16<T>(o[d + 1], a, v[2], v[3]);
        }
      }
    }
  }

  /// Dims of the pair that the lane holds in o[d] and, for fp8, in o[d + 1] as well: (first, step).
  __device__ int dim_of(int d, int e) const {
    if constexpr (kIsFp8<Kv>) return 16 * (d / 2) + 4 * (lane_ % 4) + 2 * e + d % 2;
    return 8 * d + 2 * (lane_ % 4) + e;
  }

  __device__ void write(const float (&o)[kDimBlocks][4], const float (&maximum)[2],
                        const float (&sum)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Row& r = rows_[i];
      if (!r.valid) continue;
      float factor = 0.0f;
      float lse = -INFINITY;
      if (sum[i] > 0.0f) {
        lse = (maximum[i] + __log2f(sum[i])) * kLn2;
        factor = __fdividef(p_.v_scale, sum[i]);
        if (p_.v_scale_per_head != nullptr) factor *= p_.v_scale_per_head[kv_head_];
        if (p_.sinks != nullptr)
          factor = __fdividef(factor, 1.0f + ptx::exp2_approx((p_.sinks[r.head] - lse) * kLog2E));
      }
      const std::int64_t token = static_cast<std::int64_t>(item_.o_row) + r.token;
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
  }

  __device__ void store_pair(std::int64_t at, float low, float high) const {
    if (p_.o_element == Element::f32)
      *reinterpret_cast<float2*>(static_cast<float*>(p_.o) + at) = make_float2(low, high);
    else
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(p_.o) + at) =
          p_.o_element == Element::bf16 ? ptx::pack_pair<__nv_bfloat16>(low, high)
                                        : ptx::pack_pair<__half>(low, high);
  }

  /// Place of part `part`'s row i of this lane.
  __device__ std::int64_t partial_row(int part, int i) const {
    const std::int64_t place =
        static_cast<std::int64_t>(item_.first_place + part) * p_.num_kv_heads + kv_head_;
    return place * Policy::kRows + 16 * warp_ + lane_ / 4 + 8 * i;
  }

  __device__ void keep_part(const float (&o)[kDimBlocks][4], const float (&maximum)[2],
                            const float (&sum)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t row = partial_row(item_.part, i);
      if (lane_ % 4 == 0) p_.partial_state[row] = make_float2(maximum[i], sum[i]);
        // The order of a row's numbers is the fragments', the same for every part.
#pragma unroll
      for (int d = 0; d < kDimBlocks; ++d)
        *reinterpret_cast<float2*>(p_.partial_o + row * Policy::kDimVo + 8 * d + 2 * (lane_ % 4)) =
            make_float2(o[d][2 * i], o[d][2 * i + 1]);
    }
  }

  __device__ bool arrives_last() {
    __shared__ int is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
      std::int32_t* counter =
          p_.arrivals + static_cast<std::int64_t>(item_.first_place) * p_.num_kv_heads + kv_head_;
      const std::int32_t before = ptx::arrive_at(counter);
      is_last = before == item_.parts - 1 ? 1 : 0;
      if (is_last != 0) *counter = 0;
    }
    __syncthreads();
    return is_last != 0;
  }

  /// All parts in order, so that the bits do not depend on who came last.
  __device__ void join(float (&o)[kDimBlocks][4], float (&maximum)[2], float (&sum)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float top = -INFINITY;
      for (int part = 0; part < item_.parts; ++part)
        top = fmaxf(top, __ldcg(p_.partial_state + partial_row(part, i)).x);
      const float shift = top == -INFINITY ? 0.0f : top;
      maximum[i] = top;
      sum[i] = 0.0f;
#pragma unroll
      for (int d = 0; d < kDimBlocks; ++d) o[d][2 * i] = o[d][2 * i + 1] = 0.0f;
      for (int part = 0; part < item_.parts; ++part) {
        const std::int64_t row = partial_row(part, i);
        const float2 state = __ldcg(p_.partial_state + row);
        const float weight = ptx::exp2_approx(state.x - shift);
        sum[i] += weight * state.y;
#pragma unroll
        for (int d = 0; d < kDimBlocks; ++d) {
          const float2 v = __ldcg(reinterpret_cast<const float2*>(
              p_.partial_o + row * Policy::kDimVo + 8 * d + 2 * (lane_ % 4)));
          o[d][2 * i] += weight * v.x;
          o[d][2 * i + 1] += weight * v.y;
        }
      }
    }
    write(o, maximum, sum);
  }

  const Params& p_;
  int warp_;
  int lane_;
  std::uint8_t* queries_;
  std::uint8_t* stages_;
  attention::PrefillItem item_;
  int kv_head_ = 0;
  Row rows_[2];
  float scale_log2_ = 0.0f;
};

template <class Kv, class Policy>
__global__ void __launch_bounds__(Policy::kThreads)
    ragged_prefill_kernel(const __grid_constant__ Params p) {
  PrefillKernel<Kv, Policy>(p, ptx::dynamic_shared<128>()).run();
}

}  // namespace attune::kernels::ragged_prefill::sm80
