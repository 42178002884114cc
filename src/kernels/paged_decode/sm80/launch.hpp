// The host's side of the CUDA decode kernels: which exist, and how one is started (layer kernels).
#pragma once

#include <span>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "kernels/paged_decode/sm80/params.hpp"

namespace attune::kernels::paged_decode::sm80 {

/// One compiled kernel.
struct Instance {
  DType kv_dtype = DType::bf16;
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  bool padded = false;  ///< serves smaller head dims too
  int rows = 8;         ///< query heads of one KV head that a warp works on together
  int tile = 16;
  int ctas_per_sm = 1;
  int (*warps)(int shared_per_sm) = nullptr;   ///< of a block
  int (*stages)(int shared_per_sm) = nullptr;  ///< of a warp's ring; below two it does not run
  int (*shared_bytes)(int shared_per_sm) = nullptr;
  const void* kernel = nullptr;
  const void* beside = nullptr;  ///< the same beside the kernel before it; nullptr: not compiled
  const void* listed = nullptr;  ///< the same over lists (Params::lengths); likewise
};

/// What a block of a kernel has on a card.
struct Block {
  int threads = 0;
  int shared_bytes = 0;
};

/// How a launch stands to the kernel before it in the stream.
enum class Order : unsigned char {
  after,    ///< begins when that one has ended
  settled,  ///< the CTAs may settle in while it ends (sm_90 and newer)
  beside,   ///< runs at the same time (Instance::beside)
};

/// The kernel for a dtype and head dims on a card: of those made for just these dims the one whose
/// rows hold the whole GQA group and are the fewest, else the one with most; without one, the
/// narrowest padded one. nullptr: none was compiled, or none fits. `lists`: of those alone that read
/// them.
[[nodiscard]] const Instance* find(DType kv_dtype, int head_dim_qk, int head_dim_vo,
                                   int gqa_group_size, int shared_per_sm, bool lists = false);

/// Raises the kernels' shared-memory limit; the answer is what to launch with. Once per backend.
[[nodiscard]] Result<Block> prepare(const Instance& instance, int shared_per_sm);

/// Nothing waits, nothing is allocated. `grid` is what the plan counted on. Over lists where params
/// have their lengths; never beside another kernel.
[[nodiscard]] Status launch(const Instance& instance, const Params& params, int grid, Block block,
                            Order order, cudaStream_t stream);

}  // namespace attune::kernels::paged_decode::sm80
