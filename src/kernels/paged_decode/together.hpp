// Four query rows and a run of keys of 8 bits that follow each other in memory, as they do in pages
// of HND (layer kernels): nothing is looked up, all is at displacements of a few addresses.
// Multiplies as body.hpp does, sum for sum. Keys of 16 bits gain nothing: memory is slower than
// their arithmetic, and asked faster it drops more requests.
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/paged_decode/fetch.hpp"
#include "kernels/paged_decode/loop.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::paged_decode {

/// kDims numbers a key, and a value.
template <class Unit, DType T, int kDims>
struct Together {
  using V = typename Unit::V;
  using F = typename Unit::F;
  using Number = typename Unit::Number;
  using Operand = typename Unit::Operand;
  using Run = typename Fetch<V>::Run;
  using Ahead = typename Fetch<V>::Ahead;
  static constexpr int kRows = 4;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr int kLine = Fetch<V>::kLine;
  static constexpr int kKeyBytes = kDims * static_cast<int>(dense::kBytes<T>);
  static constexpr int kRun = Unit::template kRun<T>;  ///< operands of a whole load
  static constexpr int kSteps = kKeyBytes / kLine;     ///< loads of a key
  static constexpr int kColumns = 64;                  ///< of o, in registers
  static_assert(kKeyBytes % kLine == 0 && kDims % kColumns == 0);
  static_assert(Unit::kPair == 2 && kRun * Unit::kNumbers * dense::kBytes<T> == kLine);

  /// Whether the keys, or the values, of every whole run lie like that.
  static bool everywhere(std::int64_t page_size, std::int64_t token_stride) {
    return page_size % kSpan == 0 && token_stride == kDims;
  }

  [[gnu::noinline]] static void score(const Run& run, const Number* q, float* scores) {
    const char* k = run.row(run.from);
    Ahead ahead(run.asked, k);
    for (int key = run.from; key < run.to; key += kKeys) {
      F sums[kLanes];
      simd::unroll<kLanes>([&](auto i) { sums[i] = V::zero(); });
      multiply_keys<0>(k, q, ahead, sums);
      alignas(64) float products[kLanes];
      V::store(products, V::sum_each(sums));
      simd::unroll<kRows>([&](auto r) {
        __builtin_memcpy(scores + r * kTile + key, products + r * kKeys, kKeys * sizeof(float));
      });
      k += kKeys * kKeyBytes;
      ahead.move(kKeys * kKeyBytes);
    }
  }

  /// o += weights · values.
  [[gnu::noinline]] static void add_values(const Run& run, const Number* weights, float* o) {
    const char* v = run.row(run.from);
    Ahead ahead(run.asked, v);
    weights += run.from;
    for (int block = 0; block < kBlocks; ++block) {
      F sums[kRows * kWide];
      simd::unroll<kRows * kWide>(
          [&](auto i) { sums[i] = V::load(o + i / kWide * kDims + i % kWide * kLanes); });
      multiply_values<0>(v, weights, ahead, sums);
      simd::unroll<kRows * kWide>(
          [&](auto i) { V::store(o + i / kWide * kDims + i % kWide * kLanes, sums[i]); });
      v += kColumns * dense::kBytes<T>;
      o += kColumns;
      ahead.move(kPairs * kLines * kLine);
    }
  }

 private:
  static constexpr int kKeys = kLanes / kRows;  ///< scored together
  static constexpr int kPairs = kSpan / Unit::kPair;
  static constexpr int kBlocks = kDims / kColumns;
  static constexpr int kWide = kColumns / kLanes;
  static constexpr int kLines = kSpan * kKeyBytes / kLine / (kBlocks * kPairs);  ///< of a pair
  static_assert(kKeys == kRows && kLines <= kRows);

  /// Recursion, because g++ 12 leaves closures of this size out of line.
  template <int step>
  [[gnu::always_inline]] static void multiply_keys(const char* k, const Number* q,
                                                   const Ahead& ahead, F (&sums)[kLanes]) {
    Operand x[kKeys][kRun];
    simd::unroll<kKeys>(
        [&](auto i) { Unit::template load_keys<T>(k + i * kKeyBytes + step * kLine, x[i]); });
    simd::unroll<kRun * kRows>([&](auto at) {
      constexpr int part = at / kRows;
      constexpr int row = at % kRows;
      const Operand query = Unit::load(q + row * kDims + (step * kRun + part) * Unit::kNumbers);
      simd::unroll<kKeys>([&](auto i) {
        F& sum = sums[row * kKeys + i];
        sum = Unit::multiply_add(query, x[i][part], sum);
      });
      // A step's lines, spread over its products.
      if constexpr (part == 0) ahead.template ask<(step * kRows + row) * kLine>();
    });
    if constexpr (step + 1 < kSteps) multiply_keys<step + 1>(k, q, ahead, sums);
  }

  template <int pair>
  [[gnu::always_inline]] static void multiply_values(const char* v, const Number* weights,
                                                     const Ahead& ahead, F (&sums)[kRows * kWide]) {
    Operand x[kWide];
    const char* const first = v + pair * Unit::kPair * kKeyBytes;
    Unit::template load_columns<T>(first, first + kKeyBytes, x);
    simd::unroll<kRows>([&](auto r) {
      const Operand weight = Unit::broadcast(weights + r * kTile + pair * Unit::kPair);
      simd::unroll<kWide>([&](auto c) {
        F& sum = sums[r * kWide + c];
        sum = Unit::multiply_add(weight, x[c], sum);
      });
      if constexpr (r < kLines) ahead.template ask<(pair * kLines + r) * kLine>();
    });
    if constexpr (pair + 1 < kPairs) multiply_values<pair + 1>(v, weights, ahead, sums);
  }
};

}  // namespace attune::kernels::paged_decode
