// y = x · Wᵀ over repacked tiles (layer kernels), a template on the unit that multiplies integers.
//
// For each group of 16 or 32 numbers and each row of x the unit forms 16 integer dot products, one
// a lane; they become fp32 once, times the weight's and the activation's scale. Several rows of x
// share the digits in registers. The order of every sum is the same for any number of rows, so a
// token's result does not depend on its neighbours.
//
// A Unit has 16 lanes and these verbs: F, I (16 fp32, 16 int32), Line (64 digits as unsigned
// bytes);
//   set, load, load_n, store_n, fma, mul for F; integers(int) for I; to_float(I)
//   prefetch(p);
//   halves(p), unsigned_bytes(p), signed_bytes(p): 16 of them as F
//   line(p); low(Line), high(Line): halves of the bytes
//   dot(I, Line, q): lane += four digits times q[0 … 3]; digits up to 127
//   dot_full(I, Line, q): digits up to 255, the unit's kFullZero subtracted from each
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant_matmul/layout.hpp"
#include "kernels/quant_matmul/params.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::quant_matmul {

/// Which layouts need dot_full: only Q8_0 has digits above 127. A template, so that no instruction
/// set shares its code with another.
template <class Unit>
struct FullBytes {
  static constexpr bool used(int bits, Scales scales, bool has_min) {
    return bits == 8 && scales == Scales::halves && !has_min;
  }
};

template <class Unit, int kBits, int kGroup, Scales kScales, bool kMin>
struct Body {
  using F = typename Unit::F;
  using I = typename Unit::I;

  static constexpr std::int64_t kLineNumbers = kBits == 4 ? 8 : 4;
  static constexpr int kLines = static_cast<int>(kGroup / kLineNumbers);
  static constexpr bool kFull = FullBytes<Unit>::used(kBits, kScales, kMin);

  static void multiply(const Params& p) {
    // Rows of x in panels that stay in the second cache while the tiles pass; a tile stays in the
    // first while the panel passes.
    constexpr std::int64_t kPanel = 64;
    for (std::int64_t row = 0; row < p.num_rows; row += kPanel) {
      const std::int64_t end = row + kPanel < p.num_rows ? row + kPanel : p.num_rows;
      for (std::int64_t t = 0; t < p.num_tiles; ++t) tile_by_rows(p, t, row, end);
    }
  }

 private:
  static void tile_by_rows(const Params& p, std::int64_t t, std::int64_t row, std::int64_t end) {
    constexpr int kMost = Unit::kRows;
    for (; end - row >= kMost; row += kMost) tile<kMost>(p, t, row);
    if constexpr (kMost > 4)
      for (; end - row >= 4; row += 4) tile<4>(p, t, row);
    if constexpr (kMost > 2)
      for (; end - row >= 2; row += 2) tile<2>(p, t, row);
    for (; row < end; ++row) tile<1>(p, t, row);
  }

  static constexpr bool kHalves = kScales == Scales::halves;
  static constexpr std::int64_t kHalvesBytes = 2 * kTileRows;
  static constexpr std::int64_t kAhead = 4096;  ///< bytes of the stream fetched early

  /// Scales and minima of the current 256 numbers, where groups have integer scales.
  struct Super {
    F d, m;
  };
  static void read_super(const std::byte*& at, Super& super) {
    super.d = Unit::halves(at);
    at += kHalvesBytes;
    if constexpr (kMin) {
      super.m = Unit::mul(Unit::set(-1.0f), Unit::halves(at));
      at += kHalvesBytes;
    }
  }
  /// Of the group whose digits have just been read.
  static void read_scales(const std::byte*& at, const Super& super, F& scale, F& min) {
    constexpr std::int64_t kBytes = kHalves ? kHalvesBytes : kTileRows;
    if constexpr (kHalves) {
      scale = Unit::halves(at);
      if constexpr (kMin) min = Unit::halves(at + kBytes);
    } else {
      scale = Unit::mul(super.d, kScales == Scales::unsigned_bytes ? Unit::unsigned_bytes(at)
                                                                   : Unit::signed_bytes(at));
      if constexpr (kMin) min = Unit::mul(super.m, Unit::unsigned_bytes(at + kBytes));
    }
    at += kMin ? 2 * kBytes : kBytes;
  }

  template <int kRows>
  static void tile(const Params& p, std::int64_t t, std::int64_t row) {
    const std::byte* at = p.tiles + t * p.tile_stride;
    const std::int64_t groups = p.columns / kGroup;
    const std::int64_t x_groups = p.columns / kActivationGroup;
    const std::int8_t* q = p.q + row * p.columns;
    const float* x_scale = p.scale + row * x_groups;
    F sum[kRows];
    simd::unroll<kRows>([&](auto r) { sum[r] = Unit::set(0.0f); });

    Super super{};
    for (std::int64_t g = 0; g < groups; ++g) {
      if constexpr (!kHalves)
        if (g % (kSuper / kGroup) == 0) read_super(at, super);
      I dot[kRows];
      simd::unroll<kRows>(
          [&](auto r) { dot[r] = Unit::integers(kMin ? 0 : p.start[(row + r) * groups + g]); });
      simd::unroll<kLines>([&](auto) {
        if constexpr (kRows <= 4) Unit::prefetch(at + kAhead);
        const auto line = Unit::line(at);
        at += 64;
        if constexpr (kBits == 4) {
          const auto low = Unit::low(line);
          const auto high = Unit::high(line);
          simd::unroll<kRows>([&](auto r) {
            dot[r] = Unit::dot(dot[r], low, q + r * p.columns);
            dot[r] = Unit::dot(dot[r], high, q + r * p.columns + 4);
          });
        } else {
          simd::unroll<kRows>([&](auto r) {
            if constexpr (kFull) {
              dot[r] = Unit::dot_full(dot[r], line, q + r * p.columns);
            } else {
              dot[r] = Unit::dot(dot[r], line, q + r * p.columns);
            }
          });
        }
        q += kLineNumbers;
      });
      F scale, min;
      read_scales(at, super, scale, min);
      simd::unroll<kRows>([&](auto r) {
        const F value = Unit::mul(Unit::to_float(dot[r]), scale);
        const float factor = x_scale[r * x_groups + g * kGroup / kActivationGroup];
        sum[r] = Unit::fma(value, Unit::set(factor), sum[r]);
        if constexpr (kMin)
          sum[r] = Unit::fma(min, Unit::set(p.sums[(row + r) * groups + g]), sum[r]);
      });
    }

    const std::int64_t left = p.y_columns - t * kTileRows;
    const int n = left < kTileRows ? static_cast<int>(left) : kTileRows;
    simd::unroll<kRows>([&](auto r) {
      float* y = p.y + (row + r) * p.y_stride + t * kTileRows;
      const F before = p.accumulate ? Unit::load_n(y, n) : Unit::set(0.0f);
      Unit::store_n(y, Unit::add(before, sum[r]), n);
    });
  }
};

/// Nearest 8-bit integers under one scale for each 32 numbers.
template <class Unit>
struct QuantiseBody {
  static void quantise(const float* x, std::int64_t columns, const Activations& out) {
    using F = typename Unit::F;
    for (std::int64_t g = 0; g < columns / kActivationGroup; ++g) {
      const F a = Unit::load(x + g * 32);
      const F b = Unit::load(x + g * 32 + 16);
      const float largest_a = Unit::largest(Unit::abs(a));
      const float largest_b = Unit::largest(Unit::abs(b));
      const float largest = largest_a > largest_b || largest_a != largest_a ? largest_a : largest_b;
      out.scale[g] = largest * (1.0f / 127.0f);
      // A row of zeros keeps q = 0; a NaN makes the scale NaN, and with it the result.
      const F factor = Unit::set(largest > 0.0f ? 127.0f / largest : 0.0f);
      out.sums[2 * g] = Unit::store_rounded(out.q + g * 32, Unit::mul(a, factor));
      out.sums[2 * g + 1] = Unit::store_rounded(out.q + g * 32 + 16, Unit::mul(b, factor));
    }
  }

  static void fill_sums(const Activations& row, std::int64_t columns, const Layout& layout,
                        std::int32_t* start, float* sums) {
    const std::int64_t per_group = layout.group / 16;
    const bool full = FullBytes<Unit>::used(layout.digit_bits, layout.scales, layout.has_min);
    const int zero = layout.zero - (full ? Unit::kFullZero : 0);
    for (std::int64_t g = 0; g < columns / layout.group; ++g) {
      std::int32_t sum = row.sums[g * per_group];
      if (per_group == 2) sum += row.sums[g * per_group + 1];
      if (layout.has_min) {
        sums[g] = static_cast<float>(sum) * row.scale[g * layout.group / kActivationGroup];
      } else {
        start[g] = -zero * sum;
      }
    }
  }
};

}  // namespace attune::kernels::quant_matmul
