// Quantised weights repacked for the unit that multiplies 8-bit integers (layer kernels).
//
// Sixteen rows are one tile: lane i of every vector belongs to row i, so nothing is summed across
// lanes, and digits and scales follow each other as they are read: a thread reads one stream from
// end to end.
//
//   tile    a record for each group (halves), or for each 256 numbers (integers); rounded up to 64
//           bytes
//   record  halves: digits of the group, d[16] and, with minima, m[16] in fp16.
//           integers: d[16] and, with minima, m[16] in fp16, then for each group its digits, a byte
//           scale[16] and, with minima, a byte min[16].
//   digits  lines of 64 bytes, four bytes a row. 4-bit: numbers 8j … 8j+3 of the row in the low
//           halves of line j, 8j+4 … 8j+7 in the high halves. 8-bit: numbers 4j … 4j+3 in line j.
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

/// Bytes of the digits of one group.
[[nodiscard]] constexpr std::int64_t digit_bytes(const Layout& layout) {
  return std::int64_t{layout.group} * kTileRows * layout.digit_bits / 8;
}

/// Numbers of a row that one record holds.
[[nodiscard]] constexpr std::int64_t record_numbers(const Layout& layout) {
  return layout.scales == Scales::halves ? layout.group : kSuper;
}

[[nodiscard]] constexpr std::int64_t record_bytes(const Layout& layout) {
  const std::int64_t arrays = layout.has_min ? 2 : 1;
  const std::int64_t halves = arrays * kTileRows * 2;
  if (layout.scales == Scales::halves) return digit_bytes(layout) + halves;
  return halves + kSuper / layout.group * (digit_bytes(layout) + arrays * kTileRows);
}

[[nodiscard]] constexpr std::int64_t tile_bytes(const Layout& layout, std::int64_t columns) {
  return (columns / record_numbers(layout) * record_bytes(layout) + 63) / 64 * 64;
}

/// Repacks up to 16 rows of `columns` numbers from file order; missing rows become zeros. `tile` is
/// aligned to 64 bytes.
void pack_tile(WeightType type, const std::byte* rows, std::int64_t num_rows, std::int64_t columns,
               std::byte* tile);

}  // namespace attune::kernels::quant_matmul
