// Prompts as tiles of query rows: neighbouring tokens read the blocks that some of them keep once,
// by Hopper's prefill kernel (kernels/ragged_prefill/sm90, KvLoad::blocks).
#pragma once

#include <cstdint>
#include <optional>

#include <attune/backend.hpp>
#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "backends/minimax_sparse/cuda/selection.hpp"
#include "kernels/ragged_prefill/sm90/launch.hpp"
#include "plan/prefill_schedule.hpp"
#include "plan/workspace.hpp"
#include "plan/workspace_image.hpp"

namespace attune::backends::minimax_sparse {

/// Room of a workspace; none: no batch within its bounds is tiles.
struct TileSizes {
  std::int64_t max_items = 0;
  std::int64_t max_blocks = 0;
  std::int64_t kept_stride = 0;
};

/// Places of a workspace. The first two are a copy of the plan's image.
struct TileParts {
  kernels::ragged_prefill::sm90::WorkList* work = nullptr;
  kernels::ragged_prefill::sm90::PrefillTile* items = nullptr;  ///< [max_items]
  kernels::ragged_prefill::sm90::KeptTile* kept = nullptr;      ///< [max_items, heads, kept_stride]
  std::int32_t* num_kept = nullptr;                             ///< [max_items, heads]
};

/// A plan's share.
struct Tiles {
  bool used = false;  ///< by requests of several query tokens
  TileSizes sizes;
  TileParts parts;
  plan::PrefillSchedule schedule;
  plan::WorkspaceImage image;
};

class Tiler {
 public:
  /// Ready on the context's device, the current one; none where the spec has no such kernel.
  [[nodiscard]] static Result<std::optional<Tiler>> make(const BackendContext& context);

  [[nodiscard]] TileSizes sizes(const BatchBounds& bounds) const;
  [[nodiscard]] TileParts lay_out(plan::WorkspaceCutter& cut, const TileSizes& n) const;
  /// Whether a batch's requests of several tokens are tiles.
  [[nodiscard]] bool takes(const attention::BatchFacts& facts) const;

  /// Lists a checked batch and sends what was listed.
  [[nodiscard]] Status list(const BatchView& batch, Tiles& tiles, Stream stream) const;
  /// Behind the selection, whose lists the call has.
  [[nodiscard]] Status run(const Tiles& tiles, const attention::BatchFacts& facts,
                           const std::int32_t* kv_indices, const LayerCall& call,
                           Stream stream) const;

 private:
  Tiler(const BackendContext& context, const kernels::ragged_prefill::sm90::Instance& kernel,
        kernels::tensor_map::Encoder encoder, int blocks)
      : context_(context), kernel_(kernel), encoder_(encoder), blocks_(blocks) {}

  [[nodiscard]] int tile_tokens() const {
    return kernel_.query_tile / context_.spec.gqa_group_size();
  }
  [[nodiscard]] plan::PrefillRules rules() const;
  [[nodiscard]] Status keep_tiles(const Tiles& tiles, const TensorView& lists, Stream stream) const;

  BackendContext context_;
  kernels::ragged_prefill::sm90::Instance kernel_;
  kernels::tensor_map::Encoder encoder_;
  int blocks_;
};

}  // namespace attune::backends::minimax_sparse
