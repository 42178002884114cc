// Dims are lanes: a few keys meet a few heads in registers, a vector of products each, and one
// reduction makes all their sums. What is largest is kept as a vector, too, a lane for each pair of
// key and head, until the block ends.
#pragma once

#include <cstdint>
#include <limits>

#include "base/math.hpp"
#include "kernels/block_scores/params.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::block_scores {

template <class V, DType T>
struct Body {
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;
  static constexpr std::int64_t kBytes = T == DType::f32 ? 4 : 2;
  /// Pairs of these fill one vector of sums.
  static constexpr int kKeys = kLanes < 4 ? 1 : 4;
  static constexpr int kHeads = kLanes / kKeys;
  static_assert(kKeys * kHeads == kLanes);

  static void run(const Params& p, std::int64_t first, std::int64_t last, float* scratch) {
    const std::int64_t width = base::round_up<std::int64_t>(p.head_dim, kLanes);
    load_queries(p, width, scratch);
    for (std::int64_t block = first; block < last; ++block)
      for (int head = 0; head < p.num_heads; head += kHeads)
        score(p, block, head, scratch + head * width, width);
  }

 private:
  static void load_queries(const Params& p, std::int64_t width, float* out) {
    switch (p.q_dtype) {
      case DType::f32: return load_queries_as<DType::f32>(p, width, out);
      case DType::bf16: return load_queries_as<DType::bf16>(p, width, out);
      default: return load_queries_as<DType::f16>(p, width, out);
    }
  }

  /// Heads behind the last are zero: their scores are made, and forgotten.
  template <DType Q>
  static void load_queries_as(const Params& p, std::int64_t width, float* out) {
    constexpr std::int64_t kQueryBytes = Q == DType::f32 ? 4 : 2;
    const char* const q = static_cast<const char*>(p.q);
    const int heads = base::round_up(p.num_heads, kHeads);
    for (int h = 0; h < heads; ++h)
      for (std::int64_t d = 0; d < width; d += kLanes) {
        const std::int64_t left = h < p.num_heads ? p.head_dim - d : 0;
        V::store(out + h * width + d,
                 left <= 0
                     ? V::zero()
                     : V::template load_as_n<Q>(q + (h * p.q_head_stride + d) * kQueryBytes,
                                                left < kLanes ? static_cast<int>(left) : kLanes));
      }
  }

  /// One block, kHeads heads, page by page.
  static void score(const Params& p, std::int64_t block, int head, const float* q,
                    std::int64_t width) {
    std::int64_t key = block * p.block_size;
    const std::int64_t end = key + p.block_size < p.num_keys ? key + p.block_size : p.num_keys;
    F best = V::set(-std::numeric_limits<float>::infinity());
    while (key < end) {
      const char* at = static_cast<const char*>(p.keys);
      std::int64_t step = p.page_stride;
      std::int64_t count = end - key;
      if (p.pages == nullptr) {
        at += key * step * kBytes;
      } else {
        const std::int64_t place = key % p.page_size;
        step = p.token_stride;
        at += (p.pages[key / p.page_size] * p.page_stride + place * step) * kBytes;
        count = p.page_size - place < count ? p.page_size - place : count;
      }
      step *= kBytes;
      for (std::int64_t i = 0; i < count; i += kKeys) {
        // Behind the last key of a run that key comes again: it changes no maximum.
        const char* rows[kKeys];
        simd::unroll<kKeys>(
            [&](auto n) { rows[n] = at + (i + n < count ? i + n : count - 1) * step; });
        best = V::max(dots(rows, q, width, p.head_dim), best);
      }
      key += count;
    }
    float lanes[kLanes];
    V::store(lanes, best);
    for (int h = 0; h < kHeads && head + h < p.num_heads; ++h) {
      float most = lanes[h];
      for (int n = 1; n < kKeys; ++n) {
        const float other = lanes[n * kHeads + h];
        most = other > most ? other : most;
      }
      p.scores[(head + h) * p.score_stride + block] = most;
    }
  }

  /// Lane n * kHeads + h: key n times head h.
  static F dots(const char* const (&rows)[kKeys], const float* q, std::int64_t width,
                int head_dim) {
    F sums[kLanes];
    simd::unroll<kLanes>([&](auto i) { sums[i] = V::zero(); });
    const auto add = [&](std::int64_t d, auto load) {
      F key[kKeys];
      simd::unroll<kKeys>([&](auto n) { key[n] = load(rows[n] + d * kBytes); });
      simd::unroll<kHeads>([&](auto h) {
        const F query = V::load(q + h * width + d);
        simd::unroll<kKeys>(
            [&](auto n) { sums[n * kHeads + h] = V::fma(key[n], query, sums[n * kHeads + h]); });
      });
    };
    std::int64_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes)
      add(d, [](const char* at) { return V::template load_as<T>(at); });
    if (d < head_dim)
      add(d, [left = static_cast<int>(head_dim - d)](const char* at) {
        return V::template load_as_n<T>(at, left);
      });
    return V::sum_each(sums);
  }
};

}  // namespace attune::kernels::block_scores
