// The plain-mma prefill kernel: FlashAttention-2's schedule (arXiv:2307.08691) on the warp-wide
// product of sm_80. It honours every option and any page size; short query blocks split their keys
// over CTAs (flash decoding). docs/performance/cuda-prefill.md, "Plain mma", says why it is as it
// is.
#pragma once

#include "kernels/ptx/launch.cuh"
#include "kernels/ragged_prefill/sm80/key_ring.cuh"
#include "kernels/ragged_prefill/sm80/output.cuh"
#include "kernels/ragged_prefill/sm80/parts.cuh"
#include "kernels/ragged_prefill/sm80/products.cuh"
#include "kernels/ragged_prefill/sm80/queries.cuh"
#include "kernels/ragged_prefill/sm80/softmax.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

template <class Kv, class Policy>
class PrefillKernel {
  using F = Fragments<Policy>;
  using State = typename F::State;

 public:
  __device__ PrefillKernel(const Params& p, std::uint8_t* shared)
      : p_(p), shared_(shared), ring_(p, shared + Policy::kQueryBytes) {}

  __device__ void run() {
    const int total = p_.work->num_items * p_.num_kv_heads;
    const int grid = static_cast<int>(gridDim.x);
    // The costliest come first; every other round goes backwards, so that CTAs get equal sums.
    bool backwards = false;
#pragma unroll 1
    for (int round = 0; round < total; round += grid, backwards = !backwards) {
      const int i = round + static_cast<int>(backwards ? grid - 1 - blockIdx.x : blockIdx.x);
      if (i < total)
        do_work({.p = p_,
                 .warp = static_cast<int>(threadIdx.x / 32),
                 .lane = static_cast<int>(threadIdx.x % 32),
                 .item = p_.items + i / p_.num_kv_heads,
                 .kv_head = i % p_.num_kv_heads});
    }
  }

 private:
  __device__ void do_work(const Work& work) {
    const int kv_begin = work.item->kv_begin;
    const int kv_end = work.item->kv_end;
    const QueryRows<Policy> queries(work, shared_);
    // Nothing is copied for an item without keys, so that no copy meets another on its way.
    if (kv_begin < kv_end) {
      // Queries of the item before are still being read.
      __syncthreads();
      queries.copy();
      ring_.begin(*work.item, work.kv_head);
#pragma unroll
      for (int tile = 0; tile < KeyRing<Policy>::kAhead; ++tile) ring_.copy_next();
    }
    const Sight<Policy> sight(work);
    const Softmax<Policy> softmax(work, sight);
    State state;
    clear(state);
#pragma unroll 1
    for (int first = kv_begin; first < kv_end; first += Policy::kKeyTile) {
      const std::uint8_t* keys = ring_.take();
      ring_.copy_next();
      if (kIsFp8<Kv> && first == kv_begin) queries.convert();
      if (sight.misses(first)) continue;
      typename F::Logits s;
      multiply_keys<Kv, Policy>(work, queries.rows(), keys, s);
      if constexpr (Policy::kDimParts > 1)
        add_dim_parts<Policy>(work, shared_ + Policy::kSharedBytes - Policy::kExchangeBytes, s);
      softmax.soften(first, s, state);
      accumulate_values<Kv, Policy>(work, keys + Policy::kKeyBytes, s, state);
    }
    add_lanes(state);
    if (work.item->parts > 1) {
      const Parts<Policy> parts(work);
      parts.keep(state);
      if (!parts.is_last_to_arrive()) return;
      parts.join(state);
    }
    Output<Kv, Policy>(work, sight).write(state);
  }

  static __device__ void clear(State& state) {
#pragma unroll
    for (int m = 0; m < F::kRowBlocks; ++m) {
#pragma unroll
      for (int d = 0; d < F::kDimBlocks; ++d)
#pragma unroll
        for (int e = 0; e < 4; ++e) state.o[m][d][e] = 0.0f;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        state.maximum[m][i] = -INFINITY;
        state.sum[m][i] = 0.0f;
      }
    }
  }

  /// A row's sum lies in pieces with four lanes.
  static __device__ void add_lanes(State& state) {
#pragma unroll
    for (int m = 0; m < F::kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        state.sum[m][i] += __shfl_xor_sync(kAllLanes, state.sum[m][i], 1);
        state.sum[m][i] += __shfl_xor_sync(kAllLanes, state.sum[m][i], 2);
      }
  }

  const Params& p_;
  std::uint8_t* shared_;
  KeyRing<Policy> ring_;
};

template <class Kv, class Policy>
__global__ void __launch_bounds__(Policy::kThreads, Policy::kCtas)
    ragged_prefill_kernel(const __grid_constant__ Params p) {
  PrefillKernel<Kv, Policy>(p, ptx::dynamic_shared<128>()).run();
}

}  // namespace attune::kernels::ragged_prefill::sm80
