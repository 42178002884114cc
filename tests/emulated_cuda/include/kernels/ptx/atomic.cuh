// kernels/ptx/atomic.cuh in plain C++.
#pragma once

#include <cstdint>

#include "machine.hpp"

namespace attune::kernels::ptx {

inline std::int32_t arrive_at(std::int32_t* counter) { return (*counter)++; }

/// Blocks run one after another: whoever is waited for has left.
inline void wait_for(const std::int32_t* counter, std::int32_t value) {
  if (*counter != value) emulated::trap("a block waits for one that has not run");
}

}  // namespace attune::kernels::ptx
