// The host's side of the Hopper kernels of linear attention (layer kernels): what they can do, and
// how they are started. Nothing here waits or allocates.
#pragma once

#include <cuda_runtime_api.h>

#include <attune/status.hpp>

#include "kernels/linear/sm90/params.hpp"

namespace attune::kernels::linear::sm90 {

inline constexpr int kNarrowSlice = 64;  ///< value columns of a block of scan: one warpgroup's
inline constexpr int kWideSlice = 128;   ///< two
inline constexpr int kMaxValueDim = 2048;

/// Columns that keys of `dk` are padded to; 0: too wide for the family.
[[nodiscard]] constexpr int key_columns(Family family, int dk) {
  const bool delta = family == Family::gdn || family == Family::kda;
  if (dk <= 128) return 128;
  return dk <= 256 && !delta ? 256 : 0;
}

/// Raises the kernels' shared-memory limits on the current device; once per backend.
[[nodiscard]] Status prepare_kernels();

/// Prompts, chunk by chunk. `copy_rows`: q, k and v of `d` are workspace to be filled; otherwise
/// they are the call's own tensors. `slice`: kNarrowSlice or kWideSlice, and value_columns a
/// multiple of it.
[[nodiscard]] Status launch_prompts(const PromptParams& d, bool copy_rows, int slice,
                                    cudaStream_t stream);
/// Its parts, in order: gates without delta rule, scores with it.
[[nodiscard]] Status launch_prepare(const PromptParams& d, cudaStream_t stream);
[[nodiscard]] Status launch_gates(const PromptParams& d, cudaStream_t stream);
[[nodiscard]] Status launch_scores(const PromptParams& d, cudaStream_t stream);
[[nodiscard]] Status launch_scan(const PromptParams& d, int slice, cudaStream_t stream);
/// With the delta rule both, scores beside scan where `d` says so.
[[nodiscard]] Status launch_scores_and_scan(const PromptParams& d, int slice, cudaStream_t stream);

/// Spans of any length token by token; meant for few tokens.
[[nodiscard]] Status launch_recurrent(const DecodeParams& d, cudaStream_t stream);

/// o = act(conv(input)); states are read and not moved.
[[nodiscard]] Status launch_convolution(const ConvolutionParams& d, cudaStream_t stream);
/// Moves the states past the spans, after everybody has read them.
[[nodiscard]] Status launch_advance(const ConvolutionParams& d, cudaStream_t stream);

/// The slots of drafts get the histories that the known tokens leave: before anything moves.
[[nodiscard]] Status launch_fork_history(const ForkParams& d, cudaStream_t stream);
/// The slots of drafts get the states as they are: once the known tokens have passed them.
[[nodiscard]] Status launch_fork_state(const ForkParams& d, cudaStream_t stream);

}  // namespace attune::kernels::linear::sm90
