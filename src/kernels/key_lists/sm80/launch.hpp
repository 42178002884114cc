// Lists of the keys that query tokens attend to, a slot a key, for the latent kernels over two pools
// (layer kernels; mla_decode/params.hpp): a window's, which are in the second, then those of the
// first. Once a step, for all layers that share it.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>

namespace attune::kernels::key_lists::sm80 {

/// Of a query token. Keys are places of its request's page tables, which begin at entries of
/// kv_indices.
struct Token {
  std::int32_t window_begin = 0;  ///< the first key of its window
  std::int32_t window_keys = 0;
  std::int32_t window_entry = 0;
  std::int32_t first_keys = 0;  ///< of the first pool, from key 0 on, to be listed here
  std::int32_t first_entry = 0;
  std::int32_t reserved[3] = {0, 0, 0};
};
static_assert(sizeof(Token) == 32, "two vector loads");

struct Params {
  const Token* tokens = nullptr;  ///< [num_tokens]
  const std::int32_t* kv_indices = nullptr;
  std::int32_t window_page = 1;  ///< keys of a page of the window's pool
  std::int32_t first_page = 1;   ///< … of the first pool

  std::int32_t* lists = nullptr;  ///< [num_tokens, stride]
  std::int64_t stride = 0;
  std::int32_t* lengths = nullptr;  ///< [num_tokens]: keys that were listed
  std::int32_t num_tokens = 0;
};

[[nodiscard]] Status launch(const Params& params, cudaStream_t stream);

}  // namespace attune::kernels::key_lists::sm80
