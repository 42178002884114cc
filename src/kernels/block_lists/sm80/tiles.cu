#include "kernels/block_lists/sm80/tiles.hpp"

#include <cuda_runtime.h>

#include "base/cuda/start.hpp"
#include "base/cuda/status.hpp"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::block_lists::sm80 {
namespace {

using ragged_prefill::sm90::KeptTile;
using ragged_prefill::sm90::PrefillTile;

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr unsigned kAllLanes = 0xffffffffu;

/// A thread block for each item and KV head: sets of tokens by block, then those that are not empty.
__global__ void __launch_bounds__(kThreads) keep_tiles(const __grid_constant__ TileParams p) {
  auto* const counts = reinterpret_cast<int*>(ptx::dynamic_shared<128>());    // [kWarps]
  auto* const tokens_of = reinterpret_cast<std::uint32_t*>(counts + kWarps);  // [max_blocks]
  ptx::dependency_release();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int row = static_cast<int>(blockIdx.x);
  const int listed = row / p.num_heads;
  const int head = row - listed * p.num_heads;
  ptx::dependency_wait();
  if (listed >= static_cast<int>(p.work->num_listed)) return;
  const PrefillTile item = p.items[listed];
  const int tokens = min(item.q_tokens, p.tile_tokens);
  const auto visible = [&](int token) { return max(0, item.q_position + token + 1); };
  const int blocks = (visible(tokens - 1) + p.block_size - 1) / p.block_size;
  for (int b = thread; b < blocks; b += kThreads) tokens_of[b] = 0;
  __syncthreads();
  for (int i = thread; i < tokens * p.topk; i += kThreads) {
    const int token = i / p.topk;
    const int place = i - token * p.topk;
    const std::int32_t* const list = p.lists +
                                     (std::int64_t{item.q_token} + token) * p.lists_token_stride +
                                     head * p.lists_head_stride;
    const int block = list[place];
    bool keeps = block >= 0 && block < blocks && block * p.block_size < visible(token);
    for (int n = 0; keeps && n < place; ++n) keeps = list[n] != block;
    if (keeps) atomicAdd(&tokens_of[block], 1u << token);
  }
  __syncthreads();
  // Each warp has a run of them.
  const int length = ((blocks + kWarps - 1) / kWarps + 31) / 32 * 32;
  const int begin = min(warp * length, blocks);
  const int end = min(begin + length, blocks);
  const auto set_at = [&](int b) { return b < end ? tokens_of[b] : 0u; };
  int count = 0;
  for (int first = begin; first < end; first += 32)
    count += __popc(__ballot_sync(kAllLanes, set_at(first + lane) != 0 ? 1 : 0));
  if (lane == 0) counts[warp] = count;
  __syncthreads();
  int written = 0;
  int all = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) written += counts[w];
    all += counts[w];
  }
  KeptTile* const out = p.kept + static_cast<std::int64_t>(row) * p.kept_stride;
  for (int first = begin; first < end; first += 32) {
    const std::uint32_t set = set_at(first + lane);
    const unsigned keeps = __ballot_sync(kAllLanes, set != 0 ? 1 : 0);
    if (set != 0)
      out[written + __popc(keeps & ((1u << lane) - 1))] = {.tile = first + lane, .tokens = set};
    written += __popc(keeps);
  }
  if (thread != 0) return;
  if (all == 0) out[0] = {};
  p.num_kept[row] = max(1, all);
}

}  // namespace

Status launch_tiles(const TileParams& params, cudaStream_t stream) {
  TileParams copy = params;
  void* arguments[] = {&copy};
  return base::cuda::call_status(
      base::cuda::start(
          {.kernel = ptx::kernel_handle(&keep_tiles),
           .blocks = params.max_items * params.num_heads,
           .threads = kThreads,
           .shared_bytes = static_cast<int>(sizeof(std::uint32_t)) * (kWarps + params.max_blocks)},
          arguments, true, stream),
      "keep_tiles");
}

}  // namespace attune::kernels::block_lists::sm80
