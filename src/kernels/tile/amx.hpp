// AmxTiles: the tile verbs of amx_emulated.hpp as AMX-BF16 and AMX-INT8 instructions (layer
// kernels).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/tile/cells.hpp"

namespace attune::kernels::tile {

class AmxTiles {
 public:
  void configure() { configure(Shapes{}); }
  void configure(const Shapes& shapes) {
    struct alignas(64) Config {
      std::uint8_t palette = 1;
      std::uint8_t start_row = 0;
      std::uint8_t reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    };
    Config config;
    for (int i = 0; i < kTiles; ++i) {
      config.row_bytes[i] = static_cast<std::uint16_t>(shapes.tile[i].bytes);
      config.rows[i] = static_cast<std::uint8_t>(shapes.tile[i].rows);
    }
    // g++ 12's intrinsic says that it reads the first eight bytes, and the others are not written.
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  void release() { _tile_release(); }

  // By hand: g++ 12's intrinsics paste their tile number into the instruction's text, so it cannot
  // be a template argument.
  template <int T>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  template <int T>
  void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
  }
  /// Of tiles that are not met again soon: they leave the first-level cache to others.
  template <int T>
  void load_once(const void* from, std::int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void store(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(T) : "memory");
  }
  template <Cells Of, int C, int A, int B>
  void multiply_add() {
    if constexpr (Of == Cells::bf16)
      asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
    else
      asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};

}  // namespace attune::kernels::tile
