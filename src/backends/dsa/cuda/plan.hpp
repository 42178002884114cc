// sparse_mla on a GPU, planned: every query token is a request of its own to the latent kernels,
// over as many keys as a list has room for, each a page of one token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/backend.hpp>
#include <attune/validate.hpp>

#include "backends/shared/cuda/latent_work.hpp"
#include "backends/shared/cuda/selection.hpp"
#include "plan/latent_work.hpp"
#include "plan/workspace_image.hpp"

namespace attune::backends::dsa {

/// Places of a workspace. From `work` on it is a copy of the plan's image; page ids come last.
struct Parts : shared::cuda::LatentParts, shared::cuda::SelectionParts {
  std::int32_t* slots = nullptr;  ///< [tokens, topk]
  std::int32_t* kept = nullptr;   ///< [tokens]
  std::int32_t* kv_indices = nullptr;
};

struct Sizes {
  plan::LatentRules rules;
  plan::LatentLimits limits;
  std::int64_t tokens = 0;
  std::int64_t topk = 0;
  std::int64_t dim_vo = 0;
  std::int64_t max_kv_len = 0;
  std::int64_t kv_entries = 0;
  std::int64_t scores = 0;  ///< room for so many
  std::int32_t score_blocks = 1;

  /// Query tokens that are scored at once.
  [[nodiscard]] std::int64_t score_rows() const {
    return shared::cuda::score_rows(scores, tokens, max_kv_len);
  }
};

[[nodiscard]] std::size_t workspace_bytes(const Sizes& sizes);
[[nodiscard]] Parts lay_out(void* workspace, const Sizes& sizes);

struct DsaPlan final : Plan {
  attention::BatchFacts facts;
  Sizes sizes;
  Parts parts;
  plan::LatentShape shape;
  plan::LatentList list;
  shared::cuda::Selection selection;
  plan::WorkspaceImage image;
  // Tokens as requests.
  std::vector<std::int32_t> token_indptr, key_indptr;
  std::vector<std::int32_t> visible, entry_begin;
};

/// Lists the work of a batch that was checked; refuses one that needs more room than there is.
[[nodiscard]] Status make_image(const BatchView& batch, bool first, DsaPlan& plan);

}  // namespace attune::backends::dsa
