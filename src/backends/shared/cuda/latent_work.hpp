// The latent kernels' work in a plan: where its lists and its partial states lie in a workspace, how
// they get there, and what a launch takes from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/shared/cuda/latent_setup.hpp"
#include "kernels/mla_decode/params.hpp"
#include "plan/latent_work.hpp"
#include "plan/workspace.hpp"
#include "plan/workspace_image.hpp"

namespace attune::backends::shared::cuda {

/// Places of a workspace. A backend's own parts stand between both kinds and behind them.
struct LatentParts {
  float* partial_o = nullptr;
  float* partial_maximum = nullptr;
  float* partial_sum = nullptr;
  attention::LatentWork* work = nullptr;  ///< the image's first
  attention::LatentGroup* groups = nullptr;
  attention::LatentItem* items = nullptr;
  attention::LatentMerge* merges = nullptr;
};

/// Counted and handed out by the same lines.
void cut_partials(plan::WorkspaceCutter& cut, const plan::LatentRules& rules,
                  const plan::LatentLimits& limits, std::int64_t dim_vo, LatentParts& parts);
void cut_lists(plan::WorkspaceCutter& cut, const plan::LatentRules& rules,
               const plan::LatentLimits& limits, LatentParts& parts);

/// Refuses a batch whose lists or page ids need more room than its plan's workspace has.
[[nodiscard]] Status check_room(const plan::LatentLimits& limits, std::int64_t max_entries,
                                const plan::LatentShape& shape, const plan::LatentList& list,
                                std::size_t entries);

/// Begins an image of zeros that reaches up to `end`, with the work's lists in it.
void begin_image(const LatentParts& parts, const plan::LatentList& list, const void* end,
                 plan::WorkspaceImage& image);

/// The work of query tokens, each a request over a list of its own; lists lie `stride` entries apart,
/// however long they are. A plan's first batch decides its shape.
void list_token_work(const std::vector<std::int32_t>& token_indptr,
                     const std::vector<std::int32_t>& key_indptr, std::int64_t stride,
                     const plan::LatentRules& rules, bool first, plan::LatentShape& shape,
                     plan::LatentList& list);

void set_work(const LatentParts& parts, kernels::mla_decode::Params& p);

/// No more merge blocks than there can be to join, whatever a refresh brings.
[[nodiscard]] kernels::mla_decode::Grid grid_of(const LatentSetup& setup,
                                                const plan::LatentLimits& limits,
                                                const plan::LatentShape& shape,
                                                const kernels::mla_decode::Params& p);

}  // namespace attune::backends::shared::cuda
