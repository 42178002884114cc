#include "kernels/key_lists/sm80/launch.hpp"

#include <cuda_runtime.h>

#include "base/cuda/status.hpp"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::key_lists::sm80 {
namespace {

constexpr int kThreads = 128;

/// A block a token.
__global__ void __launch_bounds__(kThreads) list_keys(const __grid_constant__ Params p) {
  const std::int64_t t = blockIdx.x;
  const Token token = p.tokens[t];
  std::int32_t* const list = p.lists + t * p.stride;
  const auto slot_of = [&](int first_entry, int page, int key) {
    const int entry = key / page;
    return p.kv_indices[first_entry + entry] * page + key - entry * page;
  };
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < token.window_keys; i += kThreads)
    list[i] = ~slot_of(token.window_entry, p.window_page, token.window_begin + i);
  for (int i = thread; i < token.first_keys; i += kThreads)
    list[token.window_keys + i] = slot_of(token.first_entry, p.first_page, i);
  if (thread == 0) p.lengths[t] = token.window_keys + token.first_keys;
}

}  // namespace

Status launch(const Params& params, cudaStream_t stream) {
  if (params.num_tokens == 0) return {};
  ptx::launch(list_keys, static_cast<unsigned>(params.num_tokens), kThreads, 0, stream, params);
  return base::cuda::launch_status("list_keys");
}

}  // namespace attune::kernels::key_lists::sm80
