// Products on tiles, a step at a time (layer kernels). A thread alternates steps with vector work:
// the tile unit multiplies for 64 cycles a step, and what stands next in the program runs
// meanwhile.
#pragma once

#include <cstdint>

#include "kernels/tile/cells.hpp"

namespace attune::kernels::tile {

inline constexpr int kSide = 16;           ///< rows of a tile; columns of sums
inline constexpr int kDepth = 32;          ///< numbers of bf16 a row of a tile holds
inline constexpr int kTileNumbers = 512;   ///< bf16 of a tile
inline constexpr std::int64_t kLine = 64;  ///< bytes of a row of a tile

/// blocks x (c[two tiles of rows][32 columns] (+)= a[rows][steps] · b[steps][32 columns]), or of
/// one tile of rows. b's tiles are packed, 1 KB each. Strides and offsets count bf16, of c sums;
/// blocks count `row_blocks` of rows for each block of columns.
struct Product {
  const std::uint16_t* a = nullptr;
  std::int64_t a_stride = 0;  ///< from a row to the next
  std::int64_t a_low = 0;     ///< to the second tile of rows
  std::int64_t a_step = 0;
  std::int64_t a_block = 0;
  const std::uint16_t* b = nullptr;
  std::int64_t b_right = 0;  ///< to the tile of the right 16 columns
  std::int64_t b_step = 0;
  std::int64_t b_block = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t c_low = 0;        ///< to the sums of the second tile of rows
  std::int64_t c_block = 0;      ///< to the next block of columns
  std::int64_t c_row_block = 0;  ///< to the next block of rows
  bool add = false;
  bool low_rows = true;  ///< two tiles of rows, not one
  int steps = 0;
  int blocks = 0;
  int row_blocks = 1;

  int block = 0;  ///< where it stands
  int step = 0;

  [[nodiscard]] bool done() const { return block == blocks; }
  [[nodiscard]] const std::uint16_t* rows() const {
    return a + block % row_blocks * a_block + step * a_step;
  }
  [[nodiscard]] const std::uint16_t* columns() const {
    return b + block / row_blocks * b_block + step * b_step;
  }
  [[nodiscard]] float* sums() const {
    return c + block / row_blocks * c_block + block % row_blocks * c_row_block;
  }
};

/// Sums in tiles 0 to 3, rows in 4 and 5, columns in 6 and 7. The unit names the instruction set.
template <class Unit>
class Multiplier {
 public:
  /// Before any other verb and after all others. No destructor: its clean-up code for exceptions
  /// would be a symbol that objects of other instruction sets share.
  void configure() { tiles_.configure(); }
  void release() { tiles_.release(); }

  /// One step of `p`: four products. A product's block is to be finished before another product
  /// takes a step.
  template <Cells C = Cells::bf16>
  [[gnu::always_inline]] void step(Product& p) {
    if (p.step == 0) begin_block(p);
    const std::uint16_t* const a = p.rows();
    const std::uint16_t* const b = p.columns();
    // As few tiles as possible hold anything at a time, and what was multiplied is zeroed at once:
    // a core whose other thread is at work has hardly more tiles than these eight names, and a load
    // or a product that finds none waits for what is before it (docs/performance/cpu.md).
    tiles_.template load<4>(a, p.a_stride * 2);
    tiles_.template load_once<6>(b, kLine);
    tiles_.template load_once<7>(b + p.b_right, kLine);
    tiles_.template multiply_add<C, 0, 4, 6>();
    tiles_.template multiply_add<C, 1, 4, 7>();
    tiles_.template zero<4>();
    if (p.low_rows) {
      tiles_.template load<5>(a + p.a_low, p.a_stride * 2);
      tiles_.template multiply_add<C, 2, 5, 6>();
      tiles_.template zero<6>();
      tiles_.template multiply_add<C, 3, 5, 7>();
      tiles_.template zero<5>();
    } else {
      tiles_.template zero<6>();
    }
    tiles_.template zero<7>();
    if (++p.step < p.steps) return;
    sums_ = {p.sums(), p.c_stride, p.c_low, p.low_rows};
    p.step = 0;
    ++p.block;
  }

  /// Writes the last block's sums. A block's sums are written when the next one begins, not at
  /// once: stores that wait for products hold up the loads behind them.
  void settle() {
    if (sums_.c == nullptr) return;
    const std::int64_t stride = sums_.stride * 4;
    tiles_.template store<0>(sums_.c, stride);
    tiles_.template store<1>(sums_.c + kSide, stride);
    if (sums_.low_rows) {
      float* const low = sums_.c + sums_.low;
      tiles_.template store<2>(low, stride);
      tiles_.template store<3>(low + kSide, stride);
    }
    sums_.c = nullptr;
  }

 private:
  void begin_block(const Product& p) {
    settle();
    if (!p.add) {
      tiles_.template zero<0>();
      tiles_.template zero<1>();
      tiles_.template zero<2>();
      tiles_.template zero<3>();
      return;
    }
    const std::int64_t stride = p.c_stride * 4;
    const float* const c = p.sums();
    tiles_.template load<0>(c, stride);
    tiles_.template load<1>(c + kSide, stride);
    if (p.low_rows) {
      const float* const low = c + p.c_low;
      tiles_.template load<2>(low, stride);
      tiles_.template load<3>(low + kSide, stride);
    }
  }

  struct Sums {
    float* c = nullptr;
    std::int64_t stride = 0;
    std::int64_t low = 0;
    bool low_rows = true;
  };

  typename Unit::Tiles tiles_;
  Sums sums_;
};

}  // namespace attune::kernels::tile
