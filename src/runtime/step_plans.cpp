#include "runtime/step_plans.hpp"

#include <algorithm>
#include <utility>

namespace attune::runtime {

StepPlans::StepPlans(const BackendSet& backends, const KvMemory& kv, const EngineOptions& options,
                     model::Ops& ops)
    : backends_(backends),
      kv_(kv),
      options_(options),
      ops_(ops),
      slots_(backends.groups.size()),
      parts_(backends.groups.size()),
      groups_(backends.groups.size()) {}

Result<std::unique_ptr<StepPlans>> StepPlans::make(const BackendSet& backends, const KvMemory& kv,
                                                   const EngineOptions& options, model::Ops& ops) {
  std::unique_ptr<StepPlans> plans(new StepPlans(backends, kv, options, ops));
  if (Status s = plans->allocate(); !s.ok()) return s;
  return plans;
}

Status StepPlans::allocate() {
  for (std::size_t g = 0; g < slots_.size(); ++g) {
    for (const StepPart part : {StepPart::decode, StepPart::verify, StepPart::prefill}) {
      if (part == StepPart::verify && !options_.speculation.enabled()) continue;
      const WorkspaceSize size =
          backends_.groups[g].of(phase_of(part, g)).workspace_size(bounds_of(part, g));
      Slot& slot = slots_[g][static_cast<std::size_t>(part)];
      Result<model::Buffer> device = ops_.allocate(size.device_bytes);
      if (!device.ok()) return device.status();
      slot.device = std::move(*device);
      slot.host.resize(size.host_bytes);
      slot.workspace = {.device = slot.device.data(),
                        .device_bytes = size.device_bytes,
                        .host = slot.host.data(),
                        .host_bytes = size.host_bytes};
      workspace_bytes_ += static_cast<std::int64_t>(size.device_bytes + size.host_bytes);
    }
  }
  if (ops_.device() == DeviceKind::cpu) return {};
  const auto bytes = static_cast<std::size_t>(options_.max_step_tokens()) * sizeof(std::int64_t);
  for (std::size_t c = 0; c < kv_.groups().size(); ++c) {
    Result<model::Buffer> slots = ops_.allocate(bytes);
    if (!slots.ok()) return slots.status();
    device_slots_.push_back(std::move(*slots));
  }
  return {};
}

Phase StepPlans::phase_of(StepPart part, std::size_t group) const {
  const bool decodes = part == StepPart::decode ||
                       (part == StepPart::verify && options_.speculation.verify_as_decodes &&
                        kv_.group_of(group) >= 0);
  return decodes ? Phase::decode : Phase::prefill;
}

BatchBounds StepPlans::bounds_of(StepPart part, std::size_t group) const {
  const int cache_group = kv_.group_of(group);
  const std::int64_t pages =
      cache_group < 0
          ? 0
          : kv_.pages_of_request(static_cast<std::size_t>(cache_group), options_.context_limit);
  const bool decode_only = phase_of(part, group) == Phase::decode;
  const std::int64_t drafted = options_.max_decode_tokens();
  const std::int64_t batch =
      part == StepPart::verify && decode_only ? drafted : options_.scheduler.max_batch;
  return {.max_batch = batch,
          .max_qo_tokens = part == StepPart::verify   ? drafted
                           : part == StepPart::decode ? batch
                                                      : options_.scheduler.chunk_size,
          .max_kv_entries = batch * pages,
          .max_kv_len = std::min(options_.context_limit, pages * backends_.page_size),
          .page_size = backends_.page_size,
          .decode_only = decode_only};
}

BatchView StepPlans::view_of(const PartBatch& part, std::size_t group) const {
  const int cache_group = kv_.group_of(group);
  return cache_group < 0 ? part.pageless : part.views[static_cast<std::size_t>(cache_group)];
}

std::span<const std::int64_t> StepPlans::slots_on_device(const StepBatch& batch,
                                                         std::size_t cache_group) const {
  const std::span<const std::int64_t> slots = batch.slot_mapping(cache_group);
  if (device_slots_.empty()) return slots;
  return {static_cast<const std::int64_t*>(device_slots_[cache_group].data()), slots.size()};
}

Status StepPlans::plan(const StepBatch& batch) {
  for (std::size_t c = 0; c < device_slots_.size(); ++c) {
    const std::span<const std::int64_t> slots = batch.slot_mapping(c);
    ops_.upload(device_slots_[c].data(), slots.data(), slots.size_bytes());
  }
  for (std::size_t g = 0; g < slots_.size(); ++g) {
    parts_[g].clear();
    for (const PartBatch& part : batch.parts()) {
      Backend& backend = backends_.groups[g].of(phase_of(part.part, g));
      Slot& slot = slots_[g][static_cast<std::size_t>(part.part)];
      Result<PlanHandle> plan = backend.plan(view_of(part, g), slot.workspace, ops_.stream());
      if (!plan.ok()) return plan.status();
      slot.plan = std::move(*plan);
      parts_[g].push_back({.first_row = part.first_row,
                           .num_rows = part.num_rows,
                           .backend = &backend,
                           .plan = slot.plan.get()});
    }
    groups_[g] = {.parts = parts_[g], .slot_mapping = {}};
    if (const int cache_group = kv_.group_of(g); cache_group >= 0)
      groups_[g].slot_mapping = slots_on_device(batch, static_cast<std::size_t>(cache_group));
  }
  return {};
}

}  // namespace attune::runtime
