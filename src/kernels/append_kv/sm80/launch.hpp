// Writing new keys and values to their slots on a GPU (layer kernels): stored = round(x / scale).
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

namespace attune::kernels::append_kv::sm80 {

/// One of K and V. Strides in elements.
struct Side {
  const void* in = nullptr;  ///< [tokens, heads, head_dim]
  std::int64_t in_token_stride = 0;
  std::int64_t in_head_stride = 0;
  void* cache = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  int head_dim = 0;
  float scale = 1.0f;
  const float* scale_per_head = nullptr;  ///< [heads], instead of scale
};

struct Params {
  Side k;
  Side v;
  DType in_dtype = DType::bf16;
  DType cache_dtype = DType::bf16;
  std::int32_t page_size = 1;
  int num_heads = 0;
  std::int64_t num_tokens = 0;
  std::int64_t num_slots = 0;                  ///< of the pool; nothing is written beyond it
  const std::int64_t* slot_mapping = nullptr;  ///< [num_tokens], negative = skip
  /// A stored row stands for so many neighbouring slots of slot_mapping: the last one's token writes
  /// it, the others write nothing.
  std::int32_t tokens_per_row = 1;
};

/// Types: fp32, bf16, fp16 in; those and fp8 in the cache.
[[nodiscard]] Status launch(const Params& params, cudaStream_t stream);

/// 576-wide rows into the fp8 latent cache, 656 bytes a token (attention/packed_latent.hpp): `k`
/// alone, the strides of its cache in bytes.
[[nodiscard]] Status launch_packed(const Params& params, cudaStream_t stream);

}  // namespace attune::kernels::append_kv::sm80
