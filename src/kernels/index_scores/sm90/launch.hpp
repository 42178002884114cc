// Scores of an indexer by Hopper's matrix products (layer kernels).
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "kernels/index_scores/sm80/launch.hpp"
#include "kernels/tensor_map/tensor_map.hpp"

namespace attune::kernels::index_scores::sm90 {

inline constexpr int kMostHeads = 64;
inline constexpr int kMostDim = 128;  ///< narrower keys and queries are filled up with zeros
inline constexpr int kKeys = 128;     ///< of a tile

/// Neighbouring tokens of a request that meet its keys together. The last of them sees `keys`, the
/// others no more.
struct Group {
  std::int32_t first_token = 0;
  std::int32_t num_tokens = 0;
  std::int32_t entry_begin = 0;  ///< the request's first entry in kv_indices
  std::int32_t keys = 0;
};
static_assert(sizeof(Group) == 16, "one vector load");

/// What one thread block does: `tiles` key tiles, from tile `tile` of group `group` on into the
/// groups behind it.
struct Share {
  std::int32_t group = 0;
  std::int32_t tile = 0;
  std::int32_t tiles = 0;
  std::int32_t reserved = 0;
};
static_assert(sizeof(Share) == 16, "one vector load");

/// One compiled kernel. `rows`: (token, head) pairs of a group.
struct Instance {
  DType dtype = DType::bf16;
  int rows = 0;
  int shared_bytes = 0;
  const void* kernel = nullptr;
};

/// Whether there is a kernel for an indexer: pieces of 16 bytes, no more than the shapes above.
[[nodiscard]] constexpr bool serves(int num_heads, int head_dim) {
  return num_heads <= kMostHeads && head_dim <= kMostDim && head_dim % 8 == 0;
}
/// Rows that a token takes: its heads, and zeros.
[[nodiscard]] constexpr int rows_of_token(int num_heads) { return num_heads <= 32 ? 32 : 64; }

/// Whether the copy engine can bring tiles of such pages.
[[nodiscard]] constexpr bool maps_keys(int page_size) { return page_size % (kKeys / 2) == 0; }

/// Of bf16 or fp16, for requests of this many tokens.
[[nodiscard]] Instance instance_of(DType dtype, int num_heads, std::int64_t tokens);

/// Once per instance and device: raises the shared-memory limit.
[[nodiscard]] Status prepare(const Instance& instance);

/// A launch's own, beside params; of params' lists by token none is read.
struct Work {
  std::int64_t q_tokens = 0;   ///< of the whole q
  std::int64_t num_pages = 0;  ///< of the keys
  const Group* groups = nullptr;
  const Share* shares = nullptr;
  int blocks = 0;  ///< a share each
};

/// Scores of tokens params.first_token … go to rows of their own.
[[nodiscard]] Status launch(const Instance& instance, tensor_map::Encoder encoder,
                            const sm80::Params& params, const Work& work, cudaStream_t stream);

}  // namespace attune::kernels::index_scores::sm90
