// kernels/ptx/cluster.cuh in plain C++.
#pragma once

#include "machine.hpp"

namespace attune::kernels::ptx {

inline int cluster_rank() { return emulated::cluster_rank(); }
inline int cluster_size() { return emulated::cluster_size(); }
inline void cluster_sync() { emulated::meet_cluster(); }

template <class T>
T* shared_of(int rank, T* mine) {
  return static_cast<T*>(emulated::shared_of(rank, mine));
}

}  // namespace attune::kernels::ptx
