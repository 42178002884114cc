// The plans of a step: who serves each part of it for each group of layers, in memory of its own
// (layer runtime).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <attune/backend.hpp>
#include <attune/status.hpp>

#include "model/ops.hpp"
#include "model/step.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/batch_builder.hpp"
#include "runtime/engine_options.hpp"
#include "runtime/kv_memory.hpp"

namespace attune::runtime {

class StepPlans {
 public:
  /// All arguments outlive the plans.
  static Result<std::unique_ptr<StepPlans>> make(const BackendSet& backends, const KvMemory& kv,
                                                 const EngineOptions& options, model::Ops& ops);

  /// Plans `batch`, which stays as it is until the step is done.
  Status plan(const StepBatch& batch);

  /// Of the batch planned last, by attention group.
  [[nodiscard]] std::span<const model::GroupStep> groups() const { return groups_; }
  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  /// One group's plan for one part.
  struct Slot {
    model::Buffer device;
    std::vector<std::byte> host;
    Workspace workspace;
    PlanHandle plan;
  };

  StepPlans(const BackendSet& backends, const KvMemory& kv, const EngineOptions& options,
            model::Ops& ops);
  Status allocate();
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
};

}  // namespace attune::runtime
