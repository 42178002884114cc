// Plans of a latent group's prompts in expanded form (layer runtime): the step's own keys, then the
// cached prefixes of all its requests, one behind the other, cut into chunks of equal length.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include <attune/backend.hpp>
#include <attune/batch.hpp>
#include <attune/status.hpp>

#include "model/config.hpp"
#include "model/ops.hpp"
#include "model/step.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/engine_options.hpp"

namespace attune::runtime {

class LatentPlans {
 public:
  /// All outlive the plans. `config`: of a layer of the group.
  LatentPlans(const ExpandedBackends& backends, const model::AttentionConfig& config,
              const EngineOptions& options, model::Ops& ops)
      : backends_(backends), config_(config), options_(options), ops_(ops) {}

  /// The form of a step's prompts.
  [[nodiscard]] LatentForm form_of(const BatchView& batch) const;

  /// Valid until the next call; `batch` has pages, and its first query is the step's `first_row`.
  Result<std::span<const model::ExpandedPart>> plan(const BatchView& batch, std::int64_t first_row);

 private:
  /// Keys [begin, end) of one request.
  struct Piece {
    std::int64_t request = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  /// One ragged batch and what it needs, kept for later steps.
  struct Chunk {
    std::vector<std::int32_t> qo_indptr;
    std::vector<std::int32_t> kv_indptr;
    std::vector<std::int32_t> slots;
    model::Buffer device_slots;
    model::Buffer device;
    std::vector<std::byte> host;
    PlanHandle plan;
  };
  /// The pieces' requests stand together, in order; those between them have no keys in it.
  Status add(const BatchView& batch, std::int64_t first_row, std::span<const Piece> pieces,
             Backend& backend);
  Status reserve(Chunk& chunk, const BatchView& view, const Backend& backend);

  const ExpandedBackends& backends_;
  const model::AttentionConfig& config_;
  const EngineOptions& options_;
  model::Ops& ops_;
  std::deque<Chunk> chunks_;
  std::vector<model::ExpandedPart> parts_;
};

}  // namespace attune::runtime
