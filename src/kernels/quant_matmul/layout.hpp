// Quantised weights repacked for the unit that multiplies 8-bit integers (layer kernels).
//
// Sixteen rows are one tile: lane i of every vector belongs to row i, so nothing is summed across
// lanes and a thread reads one stream from end to end.
//
//   tile    digits | scales, each a multiple of 64 bytes
//   digits  lines of 64 bytes, four bytes a row. 4-bit: numbers 8j … 8j+3 of the row in the low
//           halves of line j, 8j+4 … 8j+7 in the high halves. 8-bit: numbers 4j … 4j+3 in line j.
//   scales  halves: for each group d[16] and, with minima, m[16] in fp16.
//           integers: for each 256 numbers d[16] and m[16] in fp16, then for each of their groups
//           a byte scale[16] and a byte min[16]; what has no minima has no m and min.
//
// A repacked weight takes the bytes of its file, except that digits of 2 and 3 bits take 4 and
// those of 5 and 6 bits take 8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops/quant_blocks.hpp"
#include "kernels/ops/weight_type.hpp"

namespace attune::kernels::quant_matmul {

using ops::WeightType;

inline constexpr int kTileRows = 16;
inline constexpr int kSuper = 256;  ///< numbers under one half where groups have integer scales

enum class Scales : std::uint8_t { halves, unsigned_bytes, signed_bytes };

struct Layout {
  int digit_bits = 4;  ///< 4 or 8
  int group = 32;
  Scales scales = Scales::halves;
  bool has_min = false;
  int zero = 0;

  [[nodiscard]] constexpr bool operator==(const Layout&) const = default;
};

[[nodiscard]] constexpr Layout layout_of(WeightType type) {
  const ops::BlockForm form = ops::block_form(type);
  return {.digit_bits = form.digit_bits <= 4 ? 4 : 8,
          .group = form.group,
          .scales = !form.group_scales ? Scales::halves
                    : form.has_min     ? Scales::unsigned_bytes
                                       : Scales::signed_bytes,
          .has_min = form.has_min,
          .zero = form.zero};
}

[[nodiscard]] constexpr std::int64_t digit_bytes(const Layout& layout, std::int64_t columns) {
  return columns * kTileRows * layout.digit_bits / 8;
}

/// Bytes of the scales of one group (halves), or of 256 numbers (integers).
[[nodiscard]] constexpr std::int64_t scale_record_bytes(const Layout& layout) {
  const std::int64_t arrays = layout.has_min ? 2 : 1;
  const std::int64_t halves = arrays * kTileRows * 2;
  return layout.scales == Scales::halves ? halves
                                         : halves + kSuper / layout.group * arrays * kTileRows;
}

[[nodiscard]] constexpr std::int64_t tile_bytes(const Layout& layout, std::int64_t columns) {
  const std::int64_t per_record = layout.scales == Scales::halves ? layout.group : kSuper;
  const std::int64_t scales = columns / per_record * scale_record_bytes(layout);
  return digit_bytes(layout, columns) + (scales + 63) / 64 * 64;
}

/// Repacks up to 16 rows of `columns` numbers from file order; missing rows become zeros. `tile` is
/// aligned to 64 bytes.
void pack_tile(WeightType type, const std::byte* rows, std::int64_t num_rows, std::int64_t columns,
               std::byte* tile);

}  // namespace attune::kernels::quant_matmul
