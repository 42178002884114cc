#include "kernels/block_lists/sm80/launch.hpp"

#include <cuda_runtime.h>

#include "base/cuda/start.hpp"
#include "base/cuda/status.hpp"
#include "kernels/block_lists/sm80/few.cuh"
#include "kernels/block_lists/sm80/many.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::block_lists::sm80 {
namespace {

/// A thread block has kWarps / WarpsOfList lists. Nobody leaves before the last barrier.
template <int WarpsOfList>
__global__ void __launch_bounds__(kThreads) choose_few(const __grid_constant__ Params p) {
  constexpr int kLists = kWarps / WarpsOfList;
  auto* const all_picks = reinterpret_cast<Pick*>(ptx::dynamic_shared<128>());
  auto* const all_blocks = reinterpret_cast<std::int32_t*>(all_picks + kLists * p.picks);
  ptx::dependency_release();
  const int thread = static_cast<int>(threadIdx.x);
  const int n = thread / (32 * WarpsOfList);
  const int row = static_cast<int>(blockIdx.x) * kLists + n;
  const bool exists = row < p.num_tokens * p.num_heads;
  const List list =
      exists ? list_of(p, row, thread % (32 * WarpsOfList), 32 * WarpsOfList) : List{};
  Pick* const picks = all_picks + n * p.picks;
  std::int32_t* const blocks = all_blocks + n * p.topk;
  const int always = p.init_blocks + p.local_blocks;
  const int open = list.num_blocks > p.topk ? list.num_blocks - always : 0;
  const int wanted = p.topk - always;
  // The kernels before write scores, and whoever reads lists may not have ended.
  ptx::dependency_wait();
  if (exists) put_kept_always(p, list, blocks);
  if (open > 0)
    pick_of_runs<WarpsOfList>(
        p.scores + static_cast<std::int64_t>(row) * p.scores_stride + p.init_blocks, open, wanted,
        picks);
  __syncthreads();
  if (open > 0 && list.thread < 32)
    keep_picks(picks, (open + kRun - 1) / kRun * wanted, wanted, p.init_blocks,
               blocks + p.init_blocks);
  __syncthreads();
  if (!exists) return;
  const int count = min(list.num_blocks, p.topk);
  write_list(p, list, blocks, count);
  write_pages(p, list, blocks, count);
}

__global__ void __launch_bounds__(kThreads) choose_many(const __grid_constant__ Params p) {
  auto& shared = *reinterpret_cast<ManyShared*>(ptx::dynamic_shared<128>());
  auto* const blocks = reinterpret_cast<std::int32_t*>(&shared + 1);  // [topk]
  ptx::dependency_release();
  const List list =
      list_of(p, static_cast<int>(blockIdx.x), static_cast<int>(threadIdx.x), kThreads);
  const int always = p.init_blocks + p.local_blocks;
  ptx::dependency_wait();
  put_kept_always(p, list, blocks);
  if (list.num_blocks > p.topk && p.topk > always)
    keep_largest(shared, p.scores + static_cast<std::int64_t>(blockIdx.x) * p.scores_stride,
                 p.init_blocks, list.num_blocks - always, p.topk - always, blocks + p.init_blocks);
  __syncthreads();
  const int count = min(list.num_blocks, p.topk);
  write_list(p, list, blocks, count);
  write_pages(p, list, blocks, count);
}

__global__ void __launch_bounds__(kThreads) read_blocks(const __grid_constant__ Params p) {
  auto* const given = reinterpret_cast<std::int32_t*>(ptx::dynamic_shared<128>());  // [topk]
  std::int32_t* const taken = given + p.topk;   // [topk]: -1 for passed over
  std::int32_t* const blocks = taken + p.topk;  // [topk]
  std::int32_t* const count = blocks + p.topk;  // [1]
  ptx::dependency_release();
  const int thread = static_cast<int>(threadIdx.x);
  const List list = list_of(p, static_cast<int>(blockIdx.x), thread, kThreads);
  ptx::dependency_wait();
  if (thread == 0) *count = 0;
  for (int i = thread; i < p.topk; i += kThreads) given[i] = list.blocks[i];
  __syncthreads();
  for (int i = thread; i < p.topk; i += kThreads) {
    const int block = given[i];
    bool take = block >= 0 && block < list.num_blocks;
    for (int j = 0; take && j < i; ++j) take = given[j] != block;
    taken[i] = take ? block : -1;
    if (take) atomicAdd(count, 1);
  }
  __syncthreads();
  for (int i = thread; i < p.topk; i += kThreads) {
    if (taken[i] < 0) continue;
    int place = 0;
    for (int j = 0; j < p.topk; ++j) place += taken[j] >= 0 && taken[j] < taken[i] ? 1 : 0;
    blocks[place] = taken[i];
  }
  __syncthreads();
  write_pages(p, list, blocks, *count);
}

struct Shape {
  const void* kernel = nullptr;
  int lists = 1;  ///< of a thread block
  std::size_t shared_bytes = 0;
};

Status start(const Shape& shape, const Params& params, const char* what, cudaStream_t stream) {
  if (params.num_tokens == 0) return {};
  Params copy = params;
  void* arguments[] = {&copy};
  return base::cuda::call_status(
      base::cuda::start(
          {.kernel = shape.kernel,
           .blocks = (params.num_tokens * params.num_heads + shape.lists - 1) / shape.lists,
           .threads = kThreads,
           .shared_bytes = static_cast<int>(shape.shared_bytes)},
          arguments, true, stream),
      what);
}

std::size_t list_bytes(const Params& params) {
  return sizeof(std::int32_t) * static_cast<std::size_t>(params.topk);
}

}  // namespace

Status launch_choose(Params params, cudaStream_t stream) {
  const int wanted = params.topk - params.init_blocks - params.local_blocks;
  if (!are_few(wanted, params.scores_stride))
    return start({.kernel = ptx::kernel_handle(&choose_many),
                  .shared_bytes = sizeof(ManyShared) + list_bytes(params)},
                 params, "choose_blocks", stream);
  const bool one_run = params.scores_stride <= kRun;
  params.picks = static_cast<std::int32_t>((params.scores_stride + kRun - 1) / kRun * wanted);
  const int lists = one_run ? kWarps : 1;
  const std::size_t bytes = static_cast<std::size_t>(params.picks) * sizeof(Pick);
  return start({.kernel = one_run ? ptx::kernel_handle(&choose_few<1>)
                                  : ptx::kernel_handle(&choose_few<kWarps>),
                .lists = lists,
                .shared_bytes = static_cast<std::size_t>(lists) * (bytes + list_bytes(params))},
               params, "choose_blocks", stream);
}

Status launch_read(const Params& params, cudaStream_t stream) {
  return start({.kernel = ptx::kernel_handle(&read_blocks),
                .shared_bytes = 3 * list_bytes(params) + sizeof(std::int32_t)},
               params, "read_blocks", stream);
}

}  // namespace attune::kernels::block_lists::sm80
