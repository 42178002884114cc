// kernels/ptx/atomic.cuh in plain C++.
#pragma once

#include <cstdint>

namespace attune::kernels::ptx {

inline std::int32_t arrive_at(std::int32_t* counter) { return (*counter)++; }

}  // namespace attune::kernels::ptx
