// Writing new keys or values to their slots (layer kernels): stored = round(x / scale).
#pragma once

#include <cstdint>

#include <attune/tensor.hpp>

namespace attune::kernels::append_kv {

/// One of K and V. Strides in elements.
struct Params {
  const void* in = nullptr;  ///< [tokens, heads, dim]
  DType in_dtype = DType::f32;
  std::int64_t in_token_stride = 0;
  std::int64_t in_head_stride = 0;

  void* cache = nullptr;
  DType cache_dtype = DType::f32;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  std::int32_t page_size = 1;
  /// A row for so many tokens, that of the last of them; its slot is the token's, divided by it.
  std::int64_t tokens_per_row = 1;

  int num_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;
  const float* scale_per_head = nullptr;       ///< [num_heads], instead of scale
  const std::int64_t* slot_mapping = nullptr;  ///< [tokens]; negative = skip
};

/// Tokens [first, last).
void run(const Params& p, std::int64_t first, std::int64_t last);

/// 576-wide rows into the fp8 latent cache, 656 bytes a token (attention/packed_latent.hpp); the
/// cache's strides count bytes.
void run_packed(const Params& p, std::int64_t first, std::int64_t last);

}  // namespace attune::kernels::append_kv
