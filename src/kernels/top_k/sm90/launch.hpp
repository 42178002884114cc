// Lists of kept keys on a GPU (layer kernels): chosen from scores, or read, and turned into slots.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>

namespace attune::kernels::top_k::sm90 {

struct Params {
  const float* scores = nullptr;  ///< [num_tokens, scores_stride], of tokens first_token …
  std::int64_t scores_stride = 0;
  std::int32_t* lists = nullptr;  ///< [tokens, topk]: key indices
  std::int64_t lists_stride = 0;

  const std::int32_t* kv_indices = nullptr;
  const std::int32_t* entry_begin = nullptr;  ///< by token: its request's first entry
  const std::int32_t* visible = nullptr;      ///< by token: it sees keys below this
  std::int32_t page_size = 1;

  std::int32_t* slots = nullptr;  ///< [tokens, slots_stride]: where kept keys lie, without gaps
  std::int64_t slots_stride = 0;
  /// [tokens], or none: places of the token that are taken, by what is no key to choose. Kept keys
  /// follow.
  const std::int32_t* slots_before = nullptr;
  std::int32_t* kept = nullptr;  ///< [tokens]: how many, and those before
  std::int32_t first_token = 0;
  std::int32_t num_tokens = 0;
  std::int32_t topk = 0;
};

/// Blocks that share a token's scores.
inline constexpr int kMostSharers = 8;

/// Writes lists, slots and counts: the topk largest, ascending, of equals the later ones, a NaN as
/// -infinity; all where they are as few (their scores are not read). `sharers`: 1, 2, 4 or 8.
[[nodiscard]] Status launch_choose(const Params& params, int sharers, cudaStream_t stream);

/// Lists as they are given: slots and counts of what is a visible key.
[[nodiscard]] Status launch_read(const Params& params, cudaStream_t stream);

}  // namespace attune::kernels::top_k::sm90
