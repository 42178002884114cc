// The host's side of the Hopper prefill kernels (layer kernels): which kernels exist, and how one
// is started.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "kernels/ragged_prefill/sm90/params.hpp"
#include "kernels/tensor_map/tensor_map.hpp"

namespace attune::kernels::ragged_prefill::sm90 {

/// fa3 follows FlashAttention-3; fa4 moves the running maximum only when it must. Kernels that both
/// names take do so, too.
enum class Strategy : unsigned char { fa3, fa4, both };

/// Measured on an H200 (docs/performance/cuda-prefill.md), in cycles of one multiprocessor.
struct Cost {
  int tile = 0;      ///< a tile of query rows: its beginning and end
  int key_tile = 0;  ///< each key tile of it
};

/// One compiled kernel.
struct Instance {
  std::string_view name;  ///< for messages
  Strategy strategy = Strategy::fa3;
  DType dtype = DType::bf16;  ///< of q and o
  DType kv_dtype = DType::bf16;
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  bool boxes = true;    ///< takes ragged keys and pages of a multiple of 8 tokens
  bool gather = false;  ///< takes other pages
  int loaded_keys = 0;  ///< that a warp asks the copy engine for together; 0: it asks for none
  bool states = false;  ///< for levels of shared prefixes: o is fp32, at rows of the items' own
  int query_tile = 0;   ///< rows a thread block
  int key_tile = 0;
  int threads = 0;
  int shared_bytes = 0;
  Cost cost;  ///< to choose among kernels and packings
  const void* kernel = nullptr;
};

/// Every kernel of this build that takes whole requests.
[[nodiscard]] std::vector<Instance> instances();

/// Those that take levels of shared prefixes.
[[nodiscard]] std::vector<Instance> level_instances();

/// Those whose items keep some key tiles of their request, from pages. An item has at most 32
/// tokens, all of a KV head's query heads.
[[nodiscard]] std::vector<Instance> block_instances();

/// Once per instance and device: raises the shared-memory limit; the answer is how many blocks the
/// device runs at once.
[[nodiscard]] Result<int> prepare(const Instance& instance);

/// Strides count elements.
struct Operands {
  const void* q = nullptr;
  std::int64_t q_tokens = 0;
  std::int64_t q_token_stride = 0;
  std::int64_t q_head_stride = 0;
  int num_qo_heads = 0;
  int num_kv_heads = 0;
  std::int64_t num_pages = 1;        ///< ragged: 1
  std::int64_t tokens_per_page = 0;  ///< ragged: all of them
};

/// Everything in params is the caller's, box_rows and the strides of k and v too. Nothing waits,
/// nothing is allocated.
[[nodiscard]] Status launch(const Instance& instance, tensor_map::Encoder encoder, int blocks,
                            const Operands& operands, const Params& params, cudaStream_t stream);

/// Keys one TMA box brings: the most that divide both the page and what a warp asks for together.
/// 0: none for this page size.
[[nodiscard]] int box_rows(const Instance& instance, std::int64_t tokens_per_page, bool ragged);

}  // namespace attune::kernels::ragged_prefill::sm90
