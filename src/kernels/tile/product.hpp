// Products on tiles, a step at a time (layer kernels). A thread alternates steps with vector work:
// the tile unit multiplies for 64 cycles a step, and what stands next in the program runs
// meanwhile.
#pragma once

#include <cstdint>

#include "kernels/simd/unroll.hpp"
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
  /// Of the block's first step.
  [[nodiscard]] const std::uint16_t* rows() const { return a + block % row_blocks * a_block; }
  [[nodiscard]] const std::uint16_t* columns() const { return b + block / row_blocks * b_block; }
  [[nodiscard]] float* sums() const {
    return c + block / row_blocks * c_block + block % row_blocks * c_row_block;
  }
};

/// Which operand is met once by a strip, and so leaves the first cache to the other.
enum class Once : std::uint8_t { rows, columns };

/// Sums in tiles 0 to 3, rows in 4 and 5, columns in 6 and 7. The unit names the instruction set.
template <class Unit>
class Multiplier {
 public:
  /// Before any other verb and after all others. No destructor: its clean-up code for exceptions
  /// would be a symbol that objects of other instruction sets share.
  void configure() { tiles_.configure(); }
  void release() { tiles_.release(); }

  /// Half a step of `p`: the rows by 16 of the columns, two products; every other call is the right
  /// half. A product's block is to be finished before another product takes a step.
  ///
  /// As few tiles as possible hold anything at a time, and what was multiplied is zeroed at once: a
  /// core whose other thread is at work has hardly more tiles than these eight names, and a load or
  /// a product that finds none waits for what is before it (docs/performance/cpu.md).
  template <Cells C = Cells::bf16, Once kOnce = Once::columns>
  [[gnu::always_inline]] void half_step(Product& p) {
    if (!right_) {
      if (p.step == 0) {
        a_ = p.rows();
        b_ = p.columns();
      }
      load<4, kOnce == Once::rows>(a_, p.a_stride * 2);
      load<6, kOnce == Once::columns>(b_, kLine);
      if (p.low_rows) load<5, kOnce == Once::rows>(a_ + p.a_low, p.a_stride * 2);
      if (p.step == 0) begin<0>(p);
      tiles_.template multiply_add<C, 0, 4, 6>();
      if (p.low_rows) {
        if (p.step == 0) begin<2>(p);
        tiles_.template multiply_add<C, 2, 5, 6>();
      }
      tiles_.template zero<6>();
      right_ = true;
      return;
    }
    load<7, kOnce == Once::columns>(b_ + p.b_right, kLine);
    if (p.step == 0) begin<1>(p);
    tiles_.template multiply_add<C, 1, 4, 7>();
    tiles_.template zero<4>();
    if (p.low_rows) {
      if (p.step == 0) begin<3>(p);
      tiles_.template multiply_add<C, 3, 5, 7>();
      tiles_.template zero<5>();
    }
    tiles_.template zero<7>();
    right_ = false;
    a_ += p.a_step;
    b_ += p.b_step;
    if (++p.step < p.steps) return;
    settle();  // rows of the last block that this one has not
    sums_ = {p.sums(), p.c_stride, p.c_low, p.low_rows ? kAll : kUpper};
    p.step = 0;
    ++p.block;
  }

  template <Cells C = Cells::bf16, Once kOnce = Once::columns>
  [[gnu::always_inline]] void finish(Product& p) {
    while (!p.done()) half_step<C, kOnce>(p);
    settle();
  }

  /// Writes what is left of the last block's sums. They are written when the next block begins,
  /// each tile before its first product: stores that wait for products hold up what is behind them,
  /// and a tile is written while another is multiplied.
  void settle() {
    if (sums_.left == 0) return;
    simd::unroll<4>([&](auto t) { write<t>(); });
  }

 private:
  static constexpr unsigned kUpper = 0b0011;  ///< tiles of the first 16 rows
  static constexpr unsigned kAll = 0b1111;

  /// Sums not yet written.
  struct Sums {
    float* c = nullptr;
    std::int64_t stride = 0;
    std::int64_t low = 0;
    unsigned left = 0;  ///< tiles, a bit each
  };

  template <int T, bool kOnce>
  [[gnu::always_inline]] void load(const std::uint16_t* from, std::int64_t stride) {
    if constexpr (kOnce)
      tiles_.template load_once<T>(from, stride);
    else
      tiles_.template load<T>(from, stride);
  }

  template <int T>
  [[gnu::always_inline]] void write() {
    if ((sums_.left >> T & 1) == 0) return;
    sums_.left &= ~(1u << T);
    tiles_.template store<T>(sums_.c + T / 2 * sums_.low + T % 2 * kSide, sums_.stride * 4);
  }

  /// Tile T of a block's sums.
  template <int T>
  [[gnu::always_inline]] void begin(const Product& p) {
    write<T>();
    if (p.add)
      tiles_.template load<T>(p.sums() + T / 2 * p.c_low + T % 2 * kSide, p.c_stride * 4);
    else
      tiles_.template zero<T>();
  }

  typename Unit::Tiles tiles_;
  Sums sums_;
  const std::uint16_t* a_ = nullptr;  ///< of the step that it stands at
  const std::uint16_t* b_ = nullptr;
  bool right_ = false;
};

}  // namespace attune::kernels::tile
