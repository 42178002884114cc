// The words of CUDA C++ that a host compiler lacks. Included ahead of every CUDA source file.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "machine.hpp"

#undef __forceinline__
#undef __launch_bounds__
#undef __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
/// A block's static shared memory; blocks run one after another.
#define __shared__ static

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

using std::max;
using std::min;

inline void __syncthreads() { attune::emulated::barrier_sync(0, 0); }
inline void __threadfence() {}
inline void __threadfence_block() {}

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  attune::emulated::meet_warp(mask, "__syncwarp", nullptr, [](void* const*) {});
}

namespace attune::emulated {

template <class T>
struct Exchange {
  T value{};
  int source = 0;
  T got{};
};

template <class T>
T exchange(unsigned mask, const char* what, T value, int source) {
  Exchange<T> mine{value, source, {}};
  meet_warp(mask, what, &mine, [](void* const* lanes) {
    for (int lane = 0; lane < 32; ++lane) {
      if (lanes[lane] == nullptr) continue;
      auto& own = *static_cast<Exchange<T>*>(lanes[lane]);
      const int from = own.source;
      // A source that takes no part gives an undefined value on a card.
      own.got = from >= 0 && from < 32 && lanes[from] != nullptr
                    ? static_cast<Exchange<T>*>(lanes[from])->value
                    : (std::memset(static_cast<void*>(&own.got), 0xFF, sizeof(T)), own.got);
    }
  });
  return mine.got;
}

inline std::uint32_t ballot(unsigned mask, const char* what, bool value) {
  Exchange<std::uint32_t> mine{value ? 1u : 0u, 0, 0};
  meet_warp(mask, what, &mine, [](void* const* lanes) {
    std::uint32_t bits = 0;
    for (int lane = 0; lane < 32; ++lane)
      if (lanes[lane] != nullptr)
        bits |= static_cast<Exchange<std::uint32_t>*>(lanes[lane])->value << lane;
    for (int lane = 0; lane < 32; ++lane)
      if (lanes[lane] != nullptr) static_cast<Exchange<std::uint32_t>*>(lanes[lane])->got = bits;
  });
  return mine.got;
}

[[nodiscard]] inline int lane() { return current_thread() % 32; }

/// Lane `to` within the caller's segment of `width`, or the caller's own.
[[nodiscard]] inline int within(int to, int width) {
  const int begin = lane() / width * width;
  return to >= begin && to < begin + width ? to : lane();
}

}  // namespace attune::emulated

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int begin = attune::emulated::lane() / width * width;
  return attune::emulated::exchange(mask, "__shfl_sync", value, begin + (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  return attune::emulated::exchange(
      mask, "__shfl_xor_sync", value,
      attune::emulated::within(attune::emulated::lane() ^ bits, width));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  return attune::emulated::exchange(
      mask, "__shfl_up_sync", value,
      attune::emulated::within(attune::emulated::lane() - static_cast<int>(by), width));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  return attune::emulated::exchange(
      mask, "__shfl_down_sync", value,
      attune::emulated::within(attune::emulated::lane() + static_cast<int>(by), width));
}
inline unsigned __ballot_sync(unsigned mask, int value) {
  return attune::emulated::ballot(mask, "__ballot_sync", value != 0);
}
inline int __any_sync(unsigned mask, int value) {
  return attune::emulated::ballot(mask, "__any_sync", value != 0) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int value) {
  return attune::emulated::ballot(mask, "__all_sync", value == 0) == 0 ? 1 : 0;
}

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __log2f(float x) { return std::log2(x); }
inline float __logf(float x) { return std::log(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __exp2f(float x) { return std::exp2(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int __vimax3_s32(int a, int b, int c) { return std::max(a, std::max(b, c)); }

inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> 4 * i & 0xF;
    unsigned byte = static_cast<unsigned>(bytes >> 8 * (choice & 7)) & 0xFF;
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
    result |= byte << 8 * i;
  }
  return result;
}

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
template <class T>
void __stcg(T* p, T value) {
  *p = value;
}

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  const T before = *p;
  *p = before + value;
  return before;
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> value) {
  const T before = *p;
  *p = before - value;
  return before;
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  const T before = *p;
  *p = std::max(before, value);
  return before;
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  const T before = *p;
  *p = value;
  return before;
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  const T before = *p;
  if (before == compare) *p = value;
  return before;
}
