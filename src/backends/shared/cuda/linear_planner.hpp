// From a checked batch to the lists of the Hopper kernels of linear attention, and the workspace
// they live in (layer backends). bf16 requests of kRecurrentBelow tokens or more go chunk by chunk,
// the others token by token; what a request gets does not depend on its neighbours. fp32
// activations ask for fp32 results, which products of bf16 operands do not give: they always go
// token by token. So does whatever verifies drafts, which gives it the bits of decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/backend.hpp>
#include <attune/spec.hpp>

#include "kernels/linear/convolution.hpp"
#include "kernels/linear/sm90/params.hpp"
#include "plan/workspace_image.hpp"

namespace attune::backends::shared::cuda {

/// What was settled when the backend was made.
struct LinearSetup {
  AttentionSpec spec;
  kernels::linear::Family family = kernels::linear::Family::gdn;  ///< not of short_conv
  int num_sms = 0;
  /// Steps of a prompt go chunk by chunk however short: its last token has the bits that it has
  /// where the prompt is computed whole.
  bool batch_invariant = false;

  [[nodiscard]] bool recurs() const { return spec.variant != Variant::short_conv; }
  [[nodiscard]] bool has_chunks() const { return recurs() && spec.q_dtype == DType::bf16; }
  /// Fewer tokens of a request go token by token.
  [[nodiscard]] std::int64_t least_prompt() const {
    return batch_invariant ? 1 : kernels::linear::kRecurrentBelow;
  }
};

/// Room that any batch within bounds fits in; monotone in every bound.
struct LinearSizes {
  std::int64_t spans = 0;
  std::int64_t drafts = 0;         ///< requests whose last tokens may be drafts
  std::int64_t prompt_tokens = 0;  ///< rows of workspace: all tokens of a batch that has prompts
  std::int64_t sequences = 0;
  std::int64_t chunks = 0;
};

/// Pointers into the workspace.
struct LinearParts {
  // Written by the host, together.
  kernels::linear::sm90::Span* spans = nullptr;        ///< all requests
  kernels::linear::sm90::Span* short_spans = nullptr;  ///< those that go token by token
  kernels::linear::sm90::Span* drafts = nullptr;       ///< behind each of `spans`
  kernels::linear::sm90::Sequence* sequences = nullptr;
  kernels::linear::sm90::Chunk* chunks = nullptr;
  std::size_t list_bytes = 0;
  // Written by kernels.
  kernels::linear::sm90::Half* q = nullptr;
  kernels::linear::sm90::Half* k = nullptr;
  kernels::linear::sm90::Half* v = nullptr;
  kernels::linear::sm90::Half* k_until = nullptr;
  kernels::linear::sm90::Pairs* pairs = nullptr;
  float* gates = nullptr;
  // Counted by kernels: zeros before the first run and after each.
  std::int32_t* readers = nullptr;  ///< of DecodeParams
  std::int32_t* ready = nullptr;    ///< gdn: and behind it what else scores and scan count
  std::size_t counter_bytes = 0;    ///< from `readers` on
  std::size_t bytes = 0;
};

struct LinearLists {
  std::vector<kernels::linear::sm90::Span> spans;  ///< without their drafts
  std::vector<kernels::linear::sm90::Span> short_spans;
  std::vector<kernels::linear::sm90::Span> drafts;  ///< target_verify: one each, slot -1 = none
  std::vector<kernels::linear::sm90::Sequence> sequences;  ///< longest first
  std::vector<kernels::linear::sm90::Chunk> chunks;        ///< first those that begin requests
  std::int64_t num_tokens = 0;
  std::int32_t most_tokens = 0;  ///< of a request
  std::int64_t max_slot = -1;
};

[[nodiscard]] LinearSizes sizes_of(const LinearSetup& setup, const BatchBounds& bounds);

/// Over nullptr it only counts.
[[nodiscard]] LinearParts lay_out(const LinearSetup& setup, const LinearSizes& sizes,
                                  void* workspace);

/// Refuses a batch that is not one, or that names a state twice.
[[nodiscard]] Status make_lists(const LinearSetup& setup, const BatchView& batch,
                                LinearLists& lists);

/// The lists as the workspace holds them.
void write_image(const LinearParts& parts, const LinearLists& lists, void* workspace,
                 plan::WorkspaceImage& image);

struct PromptLaunch {
  kernels::linear::sm90::PromptParams params;
  bool copy_rows = true;  ///< else the call's tensors are read where they lie
  int slice = 0;
};
/// One layer's launches, from its checked call's parameters.
[[nodiscard]] PromptLaunch prompt_launch(const LinearSetup& setup, const LinearLists& lists,
                                         const LinearParts& parts,
                                         const kernels::linear::Params& p);
/// Whether what goes token by token moves the convolution's state as well: where that is the whole
/// batch. Otherwise a launch of its own does, after everybody has read it.
[[nodiscard]] inline bool recurrent_moves_history(const LinearSetup& setup,
                                                  const LinearLists& lists) {
  return setup.recurs() && lists.sequences.empty();
}
/// `conv_state`: to be moved, where that is so.
[[nodiscard]] kernels::linear::sm90::DecodeParams decode_params(const LinearSetup& setup,
                                                                const LinearLists& lists,
                                                                const LinearParts& parts,
                                                                const kernels::linear::Params& p,
                                                                void* conv_state);
[[nodiscard]] kernels::linear::sm90::ConvolutionParams convolution_launch(
    const LinearLists& lists, const LinearParts& parts,
    const kernels::linear::ConvolutionParams& p);
/// `p`: null for short_conv, which has no recurrent state.
[[nodiscard]] kernels::linear::sm90::ForkParams fork_launch(
    const LinearLists& lists, const LinearParts& parts,
    const kernels::linear::sm90::ConvolutionParams& convolution, const kernels::linear::Params* p);

/// Value columns of a block of scan: wide where narrow blocks would not find an SM each.
[[nodiscard]] int slice_of(const LinearSetup& setup, std::int64_t num_sequences);
/// Where scan wants an SM for each block and at most every other one, and there is much to do,
/// gdn's scores runs beside it: how many. 0: scan follows scores. (kda's scores take too long to
/// wait for.)
[[nodiscard]] int sms_of_scan_beside_scores(const LinearSetup& setup, std::int64_t num_sequences,
                                            std::int64_t num_chunks);
[[nodiscard]] int padded_value_columns(const AttentionSpec& spec);
[[nodiscard]] int padded_key_heads(const LinearSetup& setup);

}  // namespace attune::backends::shared::cuda
