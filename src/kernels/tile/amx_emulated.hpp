// Emulated: the tile verbs in plain C++ (layer kernels). Eight tiles of 16 rows of 64 bytes,
// products of bf16 pairs summed in fp32 or of four signed bytes summed in 32 bits: packing and
// indexing of the AMX kernels run anywhere on these.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/tile/cells.hpp"

namespace attune::kernels::tile {

class Emulated {
 public:
  /// All eight tiles at their full size; before any other verb, on each thread.
  void configure() { configure(Shapes{}); }
  void configure(const Shapes& shapes) { shapes_ = shapes; }
  void release() {}

  template <int T>
  void zero() {
    std::memset(tiles_[T], 0, sizeof tiles_[T]);
  }
  /// Rows lie `stride` bytes apart.
  template <int T>
  void load(const void* from, std::int64_t stride) {
    std::memset(tiles_[T], 0, sizeof tiles_[T]);
    for (int r = 0; r < shapes_.tile[T].rows; ++r)
      std::memcpy(tiles_[T] + r * kTileBytes, static_cast<const char*>(from) + r * stride,
                  static_cast<std::size_t>(shapes_.tile[T].bytes));
  }
  template <int T>
  void load_once(const void* from, std::int64_t stride) {
    load<T>(from, stride);
  }
  template <int T>
  void store(void* to, std::int64_t stride) {
    for (int r = 0; r < shapes_.tile[T].rows; ++r)
      std::memcpy(static_cast<char*>(to) + r * stride, tiles_[T] + r * kTileBytes,
                  static_cast<std::size_t>(shapes_.tile[T].bytes));
  }
  /// C[m][n] += sum over cells k of the products of what cell (m, k) of A and cell (k, n) of B
  /// hold: two bf16, or four signed bytes.
  template <Cells Of, int C, int A, int B>
  void multiply_add() {
    constexpr int kNumbers = Of == Cells::bf16 ? 2 : 4;
    using Sum = std::conditional_t<Of == Cells::bf16, float, std::int32_t>;
    static_assert(kCellBytes * kTileRows == kTileBytes);
    for (int m = 0; m < shapes_.tile[C].rows; ++m) {
      for (int n = 0; n < shapes_.tile[C].bytes / kCellBytes; ++n) {
        Sum sum;
        std::memcpy(&sum, tiles_[C] + m * kTileBytes + n * 4, sizeof sum);
        for (int k = 0; k < shapes_.tile[B].rows; ++k)
          for (int i = 0; i < kNumbers; ++i)
            sum += number<Of>(A, m, kNumbers * k + i) * number<Of>(B, k, kNumbers * n + i);
        std::memcpy(tiles_[C] + m * kTileBytes + n * 4, &sum, sizeof sum);
      }
    }
  }

 private:
  template <Cells Of>
  [[nodiscard]] auto number(int tile, int row, int i) const {
    if constexpr (Of == Cells::bf16)
      return number_of(tile, row, i);
    else
      return static_cast<std::int32_t>(
          static_cast<std::int8_t>(tiles_[tile][row * kTileBytes + i]));
  }
  [[nodiscard]] float number_of(int tile, int row, int i) const {
    std::uint16_t bits;
    std::memcpy(&bits, tiles_[tile] + row * kTileBytes + i * 2, sizeof bits);
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  Shapes shapes_;
  alignas(64) char tiles_[kTiles][kTileRows * kTileBytes];
};

}  // namespace attune::kernels::tile
