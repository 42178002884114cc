#include "kernels/quant_matmul/layout.hpp"

#include <algorithm>
#include <cstring>

namespace attune::kernels::quant_matmul {
namespace {

/// The digits of one group of row `row` go to their lanes.
void place_digits(const Layout& layout, const std::uint8_t* digits, std::int64_t row,
                  std::byte* group) {
  auto* lanes = reinterpret_cast<std::uint8_t*>(group) + 4 * row;
  if (layout.digit_bits == 8) {
    for (int i = 0; i < layout.group; i += 4) std::memcpy(lanes + i / 4 * 64, digits + i, 4);
    return;
  }
  for (int i = 0; i < layout.group; i += 8) {
    std::uint8_t* line = lanes + i / 8 * 64;
    for (int b = 0; b < 4; ++b)
      line[b] = static_cast<std::uint8_t>(digits[i + b] | (digits[i + 4 + b] << 4));
  }
}

void place_half(std::uint16_t half, std::int64_t row, std::byte* array) {
  std::memcpy(array + 2 * row, &half, sizeof half);
}

constexpr std::int64_t kHalves = 2 * kTileRows;

void place_group(const Layout& layout, const ops::QuantBlock& block, std::int64_t row,
                 std::byte* record) {
  place_digits(layout, block.digits, row, record);
  record += digit_bytes(layout);
  place_half(block.d, row, record);
  if (layout.has_min) place_half(block.m, row, record + kHalves);
}

void place_super(const Layout& layout, const ops::QuantBlock& block, std::int64_t row,
                 std::byte* record) {
  place_half(block.d, row, record);
  record += kHalves;
  if (layout.has_min) {
    place_half(block.m, row, record);
    record += kHalves;
  }
  for (int g = 0; g < kSuper / layout.group; ++g) {
    place_digits(layout, block.digits + g * layout.group, row, record);
    record += digit_bytes(layout);
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
  if (num_rows < kTileRows)
    std::memset(tile, 0, static_cast<std::size_t>(tile_bytes(layout, columns)));
  ops::QuantBlock block;
  const std::byte* at = rows;
  for (std::int64_t row = 0; row < std::min<std::int64_t>(num_rows, kTileRows); ++row) {
    std::byte* record = tile;
    for (std::int64_t first = 0; first < columns; first += size.per_block) {
      ops::take_apart(type, at, block);
      at += size.bytes_per_block;
      if (layout.scales == Scales::halves) {
        place_group(layout, block, row, record);
      } else {
        place_super(layout, block, row, record);
      }
      record += record_bytes(layout);
    }
  }
}

}  // namespace attune::kernels::quant_matmul
