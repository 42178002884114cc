// The plans of a step: who serves each part of it for each group of layers, in memory of its own
// (layer runtime).
//
// On a device decodes, and drafts among them, keep their plans, one for each shape of a step, and
// refresh them: a recorded step (graph_replay.hpp) finds the new lengths at the old addresses, and
// one that is issued anew computes with the same plan, so that both give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <attune/backend.hpp>
#include <attune/status.hpp>

#include "model/ops.hpp"
#include "model/step.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/batch_builder.hpp"
#include "runtime/engine_options.hpp"
#include "runtime/kv_memory.hpp"
#include "runtime/latent_plans.hpp"

namespace attune::runtime {

/// Plans that were kept and did not fit any more.
struct Replanning {
  std::int64_t count = 0;
  std::string last_reason;
};

/// Prompts of latent groups, step by step.
struct LatentStatistics {
  std::int64_t absorbed = 0;
  std::int64_t expanded = 0;
  std::int64_t prefix_chunks = 0;  ///< of cached prefixes that were expanded
};

class StepPlans {
 public:
  /// All arguments outlive the plans.
  static Result<std::unique_ptr<StepPlans>> make(const model::ModelConfig& config,
                                                 const BackendSet& backends, const KvMemory& kv,
                                                 const EngineOptions& options, model::Ops& ops);

  /// Plans `batch`, which stays as it is until the step is done.
  Status plan(const StepBatch& batch);

  /// Of the batch planned last, by attention group.
  [[nodiscard]] std::span<const model::GroupStep> groups() const { return groups_; }
  /// Of the batch planned last: another number once any of its plans is another one. 0 = they are
  /// not kept.
  [[nodiscard]] std::int64_t edition() const { return edition_; }
  [[nodiscard]] const Replanning& replanning() const { return replanning_; }
  [[nodiscard]] const LatentStatistics& latent() const { return latent_statistics_; }
  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  /// A plan, and the longest requests that it was made for.
  struct Kept {
    PlanHandle plan;
    std::int64_t edition = 0;
    int length_class = 0;
  };
  /// One group's plans for one part.
  struct Slot {
    model::Buffer device;
    std::vector<std::byte> host;
    Workspace workspace;
    PlanHandle plan;
    std::map<StepShape, Kept> kept;  ///< each is whole again when it is refreshed
  };

  StepPlans(const BackendSet& backends, const KvMemory& kv, const EngineOptions& options,
            model::Ops& ops);
  Status allocate();
  Status allocate_latent(const model::ModelConfig& config);
  /// The plan of one part, kept, made anew, or of its expanded form.
  Status add_part(const PartBatch& part, std::size_t group, bool keep, const StepShape& shape);
  Status refresh(Backend& backend, const BatchView& view, Kept& kept, int length);
  /// Refreshes the plan kept for this shape, or makes it anew where it no longer fits.
  Result<const Plan*> keep_plan(Backend& backend, const BatchView& view, const StepShape& shape,
                                Slot& slot);
  /// As a group sees it: drafts among the decodes are a verification to linear layers.
  [[nodiscard]] StepPart part_of(const PartBatch& part, std::size_t group) const;
  /// Whose kernels serve a part: prefill's for drafts, unless they are decodes in disguise.
  [[nodiscard]] Phase phase_of(StepPart part, std::size_t group) const;
  [[nodiscard]] BatchBounds bounds_of(StepPart part, std::size_t group) const;
  [[nodiscard]] BatchView view_of(const PartBatch& part, std::size_t group) const;
  [[nodiscard]] std::span<const std::int64_t> slots_on_device(const StepBatch& batch,
                                                              std::size_t cache_group) const;

  const BackendSet& backends_;
  const KvMemory& kv_;
  const EngineOptions& options_;
  model::Ops& ops_;
  std::vector<std::array<Slot, kStepParts>> slots_;  ///< by attention group, then part
  /// By cache group: slot_mapping, where memory is not the host's.
  std::vector<model::Buffer> device_slots_;
  std::vector<std::vector<model::AttentionPart>> parts_;  ///< by attention group
  std::vector<model::GroupStep> groups_;
  std::int64_t workspace_bytes_ = 0;
  std::int64_t num_editions_ = 0;
  std::int64_t edition_ = 0;
  Replanning replanning_;
  std::vector<std::unique_ptr<LatentPlans>> latent_;  ///< by attention group; none of others
  LatentStatistics latent_statistics_;
};

}  // namespace attune::runtime
