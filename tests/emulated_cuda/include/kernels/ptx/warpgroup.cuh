// kernels/ptx/warpgroup.cuh in plain C++.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/ptx/mbarrier.cuh"
#include "machine.hpp"

namespace attune::kernels::ptx {

template <int Registers>
void registers_give() {}
template <int Registers>
void registers_take() {}

inline void named_barrier_sync(int id, int threads) { emulated::barrier_sync(id, threads); }
inline void named_barrier_arrive(int id, int threads) { emulated::barrier_arrive(id, threads); }

namespace stores {

struct Rows {
  unsigned char* row = nullptr;
  const std::uint32_t* from = nullptr;
};

}  // namespace stores

inline void stmatrix(void* row, const std::uint32_t (&from)[4]) {
  stores::Rows mine{static_cast<unsigned char*>(row), from};
  (void)emulated::shared_address(row);
  emulated::meet_warp(0xffffffffu, "stmatrix", &mine, [](void* const* lanes) {
    for (int l = 0; l < 32; ++l)
      for (int m = 0; m < 4; ++m)
        std::memcpy(static_cast<stores::Rows*>(lanes[8 * m + l / 4])->row + 4 * (l % 4),
                    &static_cast<stores::Rows*>(lanes[l])->from[m], 4);
  });
}

inline void stmatrix_trans(void* row, const std::uint32_t (&from)[4]) {
  stores::Rows mine{static_cast<unsigned char*>(row), from};
  (void)emulated::shared_address(row);
  emulated::meet_warp(0xffffffffu, "stmatrix", &mine, [](void* const* lanes) {
    for (int l = 0; l < 32; ++l)
      for (int m = 0; m < 4; ++m)
        for (int e = 0; e < 2; ++e) {
          const auto half =
              static_cast<std::uint16_t>(static_cast<stores::Rows*>(lanes[l])->from[m] >> (16 * e));
          std::memcpy(static_cast<stores::Rows*>(lanes[8 * m + l % 4 * 2 + e])->row + 2 * (l / 4),
                      &half, 2);
        }
  });
}

inline void dependency_wait() {}
inline void dependency_release() {}

inline float exp2_approx(float x) { return std::exp2(x); }
inline float reciprocal_approx(float x) { return 1.0f / x; }

}  // namespace attune::kernels::ptx
