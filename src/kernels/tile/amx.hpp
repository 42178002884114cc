// AmxTiles: the tile verbs of amx_emulated.hpp as AMX-BF16 instructions (layer kernels).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace attune::kernels::tile {

class AmxTiles {
 public:
  void configure() {
    // Palette 1: eight tiles of 16 rows of 64 bytes.
    struct alignas(64) Config {
      std::uint8_t palette = 1;
      std::uint8_t start_row = 0;
      std::uint8_t reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    const Config config;
    _tile_loadconfig(&config);
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
  template <int T>
  void store(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(T) : "memory");
  }
  template <int C, int A, int B>
  void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};

}  // namespace attune::kernels::tile
