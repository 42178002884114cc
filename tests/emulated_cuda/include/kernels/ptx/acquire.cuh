// kernels/ptx/acquire.cuh in plain C++.
#pragma once

#include <cstdint>

namespace attune::kernels::ptx {

inline std::int32_t look_at(const std::int32_t* counter) { return *counter; }
inline void acquire_what_was_seen() {}

}  // namespace attune::kernels::ptx
