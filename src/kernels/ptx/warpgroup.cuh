// Roles of warpgroups: register budgets, named barriers, dependent launches, and the few
// instructions that C++ has no word for.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace attune::kernels::ptx {

/// setmaxnreg: each warpgroup of a role calls it once, at the top of the role's branch. Takes
/// effect only where __launch_bounds__ caps the registers at entry.
template <int Registers>
__device__ __forceinline__ void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Named barriers 1 … 15 (0 is __syncthreads). `threads` counts everybody who syncs or arrives.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Four 8 x 8 matrices of 16-bit elements to shared memory: lane l names row l % 8 of matrix l / 8
/// (16 bytes), and gives of every matrix the pair of elements at row l / 4, columns 2 (l % 4).
__device__ __forceinline__ void stmatrix(void* row, const std::uint32_t (&from)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
      : "memory");
}

/// The same, each matrix transposed on the way.
__device__ __forceinline__ void stmatrix_trans(void* row, const std::uint32_t (&from)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
          shared_address(row)),
      "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
      : "memory");
}

/// Programmatic dependent launch: wait for the kernels before this one in the stream to have
/// finished (or released); let the next one start. Older cards have neither, and need neither.
__device__ __forceinline__ void dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void dependency_release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// 2^x on the special function unit; 2^-inf = 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace attune::kernels::ptx
