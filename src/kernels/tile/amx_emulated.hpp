// Emulated: the tile verbs in plain C++ (layer kernels). Eight tiles of 16 rows of 64 bytes,
// products of bf16 pairs summed in fp32: packing and indexing of the AMX kernels run anywhere on
// these.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace attune::kernels::tile {

inline constexpr int kTileRows = 16;
inline constexpr int kTileBytes = 64;  ///< a row: 16 fp32, or 16 pairs of bf16

class Emulated {
 public:
  /// All eight tiles at their full size; before any other verb, on each thread.
  void configure() {}
  void release() {}

  template <int T>
  void zero() {
    std::memset(tiles_[T], 0, sizeof tiles_[T]);
  }
  /// Rows lie `stride` bytes apart.
  template <int T>
  void load(const void* from, std::int64_t stride) {
    for (int r = 0; r < kTileRows; ++r)
      std::memcpy(tiles_[T] + r * kTileBytes, static_cast<const char*>(from) + r * stride,
                  kTileBytes);
  }
  template <int T>
  void store(void* to, std::int64_t stride) {
    for (int r = 0; r < kTileRows; ++r)
      std::memcpy(static_cast<char*>(to) + r * stride, tiles_[T] + r * kTileBytes, kTileBytes);
  }
  /// C[m][n] += sum over pairs k of A[m][2k] B[k][2n] + A[m][2k+1] B[k][2n+1].
  template <int C, int A, int B>
  void multiply_add() {
    for (int m = 0; m < kTileRows; ++m) {
      for (int n = 0; n < kTileRows; ++n) {
        float sum;
        std::memcpy(&sum, tiles_[C] + m * kTileBytes + n * 4, sizeof sum);
        for (int k = 0; k < kTileRows; ++k) {
          sum += number(A, m, 2 * k) * number(B, k, 2 * n);
          sum += number(A, m, 2 * k + 1) * number(B, k, 2 * n + 1);
        }
        std::memcpy(tiles_[C] + m * kTileBytes + n * 4, &sum, sizeof sum);
      }
    }
  }

 private:
  [[nodiscard]] float number(int tile, int row, int i) const {
    std::uint16_t bits;
    std::memcpy(&bits, tiles_[tile] + row * kTileBytes + i * 2, sizeof bits);
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  alignas(64) char tiles_[8][kTileRows * kTileBytes];
};

}  // namespace attune::kernels::tile
