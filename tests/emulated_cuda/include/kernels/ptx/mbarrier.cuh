// kernels/ptx/mbarrier.cuh in plain C++. The word: phase in bit 0, arrivals a phase in bits 1 … 15,
// arrivals to come in bits 16 … 31, bytes to come (signed) in the upper half.
#pragma once

#include <cstdint>

#include "machine.hpp"

namespace attune::kernels::ptx {

inline std::uint32_t shared_address(const void* p) { return emulated::shared_address(p); }

using Mbarrier = std::uint64_t;

namespace mbarrier_word {

inline bool phase(Mbarrier b) { return (b & 1) != 0; }
inline std::uint32_t count(Mbarrier b) { return static_cast<std::uint32_t>(b >> 1 & 0x7FFF); }
inline std::uint32_t pending(Mbarrier b) { return static_cast<std::uint32_t>(b >> 16 & 0xFFFF); }
inline std::int32_t bytes(Mbarrier b) { return static_cast<std::int32_t>(b >> 32); }
inline Mbarrier make(bool phase, std::uint32_t count, std::uint32_t pending, std::int32_t bytes) {
  return std::uint64_t{static_cast<std::uint32_t>(bytes)} << 32 | std::uint64_t{pending} << 16 |
         std::uint64_t{count} << 1 | (phase ? 1u : 0u);
}

/// Takes `arrivals` and `bytes` off; a phase without either is complete.
inline void take(Mbarrier& b, std::uint32_t arrivals, std::int32_t bytes_landed) {
  if (arrivals > pending(b)) emulated::trap("more arrivals at an mbarrier than it was made for");
  const std::uint32_t left = pending(b) - arrivals;
  const std::int32_t to_come = bytes(b) - bytes_landed;
  const bool complete = left == 0 && to_come == 0;
  b = complete ? make(!phase(b), count(b), count(b), 0) : make(phase(b), count(b), left, to_come);
  if (complete) emulated::wake(&b);
}

}  // namespace mbarrier_word

inline void mbarrier_init(Mbarrier& b, std::uint32_t arrivals) {
  if (arrivals == 0 || arrivals > 0x7FFF) emulated::trap("an mbarrier of no or of absurd arrivals");
  (void)emulated::shared_address(&b);
  b = mbarrier_word::make(false, arrivals, arrivals, 0);
}
inline void mbarrier_init_fence() {}
inline void mbarrier_arrive(Mbarrier& b) { mbarrier_word::take(b, 1, 0); }
inline void mbarrier_arrive_expect(Mbarrier& b, std::uint32_t bytes) {
  mbarrier_word::take(b, 0, -static_cast<std::int32_t>(bytes));
  mbarrier_word::take(b, 1, 0);
}
inline bool mbarrier_test(Mbarrier& b, std::uint32_t parity) {
  emulated::yield();
  return mbarrier_word::phase(b) != (parity != 0);
}
inline void mbarrier_wait(Mbarrier& b, std::uint32_t parity) {
  while (mbarrier_word::phase(b) == (parity != 0)) emulated::sleep_on(&b, "an mbarrier's phase");
}

}  // namespace attune::kernels::ptx
