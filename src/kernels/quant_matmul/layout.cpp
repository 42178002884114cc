#include "kernels/quant_matmul/layout.hpp"

#include <algorithm>
#include <cstring>

namespace attune::kernels::quant_matmul {
namespace {

/// Digits first … first + count of row `row` go to their lanes.
void place_digits(const Layout& layout, const std::uint8_t* digits, std::int64_t first,
                  std::int64_t count, std::int64_t row, std::byte* tile) {
  auto* lanes = reinterpret_cast<std::uint8_t*>(tile) + 4 * row;
  if (layout.digit_bits == 8) {
    for (std::int64_t i = 0; i < count; i += 4)
      std::memcpy(lanes + (first + i) / 4 * 64, digits + i, 4);
    return;
  }
  for (std::int64_t i = 0; i < count; i += 8) {
    std::uint8_t* line = lanes + (first + i) / 8 * 64;
    for (std::int64_t b = 0; b < 4; ++b)
      line[b] = static_cast<std::uint8_t>(digits[i + b] | (digits[i + 4 + b] << 4));
  }
}

void place_half(std::uint16_t half, std::int64_t row, std::byte* array) {
  std::memcpy(array + 2 * row, &half, sizeof half);
}

void place_scales(const Layout& layout, const ops::QuantBlock& block, std::int64_t first,
                  std::int64_t row, std::byte* scales) {
  constexpr std::int64_t kHalves = 2 * kTileRows;
  if (layout.scales == Scales::halves) {
    std::byte* record = scales + first / layout.group * scale_record_bytes(layout);
    place_half(block.d, row, record);
    if (layout.has_min) place_half(block.m, row, record + kHalves);
    return;
  }
  std::byte* record = scales + first / kSuper * scale_record_bytes(layout);
  place_half(block.d, row, record);
  record += kHalves;
  if (layout.has_min) {
    place_half(block.m, row, record);
    record += kHalves;
  }
  for (int g = 0; g < kSuper / layout.group; ++g) {
    record[row] = static_cast<std::byte>(block.scales[g]);
    record += kTileRows;
    if (!layout.has_min) continue;
    record[row] = static_cast<std::byte>(block.mins[g]);
    record += kTileRows;
  }
}

}  // namespace

void pack_tile(WeightType type, const std::byte* rows, std::int64_t num_rows, std::int64_t columns,
               std::byte* tile) {
  const Layout layout = layout_of(type);
  const ops::BlockSize size = ops::block_size(type);
  std::byte* scales = tile + digit_bytes(layout, columns);
  if (num_rows < kTileRows)
    std::memset(tile, 0, static_cast<std::size_t>(tile_bytes(layout, columns)));
  ops::QuantBlock block;
  const std::byte* at = rows;
  for (std::int64_t row = 0; row < std::min<std::int64_t>(num_rows, kTileRows); ++row) {
    for (std::int64_t first = 0; first < columns; first += size.per_block) {
      ops::take_apart(type, at, block);
      at += size.bytes_per_block;
      place_digits(layout, block.digits, first, size.per_block, row, tile);
      place_scales(layout, block, first, row, scales);
    }
  }
}

}  // namespace attune::kernels::quant_matmul
