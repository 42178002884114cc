// Compressed attention on a GPU, planned: every query token is a request of its own to the latent
// kernels, over one list of keys: its window's, then compressed ones.
//
// A step has one such list for all layers, where nothing is chosen; an indexer's layers find theirs
// behind the window's places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/backend.hpp>
#include <attune/validate.hpp>

#include "backends/shared/cuda/latent_work.hpp"
#include "backends/shared/cuda/selection.hpp"
#include "kernels/key_lists/sm80/launch.hpp"
#include "plan/latent_work.hpp"
#include "plan/workspace_image.hpp"

namespace attune::backends::dsv4 {

/// Places of a workspace. From `work` on it is a copy of the plan's image; page ids come last.
/// Those of a selection are of compressed keys, and empty without an indexer.
struct Parts : shared::cuda::LatentParts, shared::cuda::SelectionParts {
  std::int32_t* lists = nullptr;                      ///< [tokens, list_keys()]
  std::int32_t* lengths = nullptr;                    ///< [tokens]
  kernels::key_lists::sm80::Token* tokens = nullptr;  ///< [tokens]
  std::int32_t* window_keys = nullptr;                ///< [tokens], with an indexer
  /// Of compressed keys, request by request, then of windows.
  std::int32_t* kv_indices = nullptr;
};

struct Sizes {
  plan::LatentRules rules;
  plan::LatentLimits limits;
  std::int64_t tokens = 0;
  std::int64_t dim = 0;
  std::int64_t window = 0;    ///< keys of a token
  std::int64_t topk = 0;      ///< 0: all compressed keys are kept
  std::int64_t max_keys = 0;  ///< compressed ones that a token sees
  std::int64_t kv_entries = 0;
  std::int64_t scores = 0;        ///< room for so many
  std::int32_t score_blocks = 0;  ///< none without an indexer

  [[nodiscard]] std::int64_t list_keys() const { return window + (topk > 0 ? topk : max_keys); }
  /// Query tokens that are scored at once.
  [[nodiscard]] std::int64_t score_rows() const {
    return shared::cuda::score_rows(scores, tokens, max_keys);
  }
};

[[nodiscard]] std::size_t workspace_bytes(const Sizes& sizes);
[[nodiscard]] Parts lay_out(void* workspace, const Sizes& sizes);

struct Dsv4Plan final : Plan {
  attention::BatchFacts facts;
  Sizes sizes;
  Parts parts;
  plan::LatentShape shape;
  plan::LatentList list;
  shared::cuda::Selection selection;
  plan::WorkspaceImage image;
  // Tokens as requests.
  std::vector<std::int32_t> token_indptr, key_indptr;
  std::vector<kernels::key_lists::sm80::Token> tokens;
  std::vector<std::int32_t> seen, entry_begin, window_keys, kv_indices;
};

/// Lists the work of a batch that was checked; refuses one that needs more room than there is.
[[nodiscard]] Status make_image(const AttentionSpec& spec, const BatchView& batch, bool first,
                                Dsv4Plan& plan);

}  // namespace attune::backends::dsv4
