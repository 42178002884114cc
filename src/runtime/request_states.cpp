#include "runtime/request_states.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "model/layer_state.hpp"
#include "runtime/device_memory.hpp"

namespace attune::runtime {
namespace {

/// Of the group that a linear layer is in.
DType dtype_of(const BackendSet& backends, int layer) {
  for (const model::AttentionGroup& group : backends.attention)
    if (is_linear(group.spec.variant) && std::ranges::count(group.layers, layer) > 0)
      return group.spec.q_dtype;
  return DType::f32;
}

Result<cache::StateMemory> memory_of(std::span<const cache::StateShape> shapes, model::Ops& ops) {
  if (ops.device() == DeviceKind::cpu) return cache::host_state_memory();
  // On a device a slot is cleared by copying a row of zeros, in the order of the stream.
  std::int64_t longest = 0;
  for (const cache::StateShape& shape : shapes)
    longest = std::max({longest, shape.recurrent_bytes(), shape.conv_bytes()});
  const std::vector<std::byte> nothing(static_cast<std::size_t>(longest));
  Result<std::shared_ptr<void>> zeros = allocate_shared(ops, nothing.size());
  if (!zeros.ok()) return zeros.status();
  ops.upload(zeros->get(), nothing.data(), nothing.size());
  const auto copy = [&ops](void* to, const void* from, std::size_t bytes) {
    const DType unit = bytes % size_of(DType::f32) == 0 ? DType::f32 : DType::bf16;
    const auto view = [&](void* data) {
      return TensorView::dense(data, unit, {1, static_cast<std::int64_t>(bytes / size_of(unit))});
    };
    ops.convert(view(const_cast<void*>(from)), view(to));
  };
  return cache::StateMemory{
      .allocate = [&ops](std::size_t bytes) { return allocate_shared(ops, bytes); },
      .clear = [copy, row = *zeros](void* to, std::size_t bytes) { copy(to, row.get(), bytes); },
      .copy = copy,
      .upload = [&ops](void* to, const void* host,
                       std::size_t bytes) { ops.upload(to, host, bytes); },
      .download = [&ops](void* host, const void* from,
                         std::size_t bytes) { return ops.download(host, from, bytes); }};
}

}  // namespace

Result<std::optional<RequestStates>> RequestStates::make(const model::ModelConfig& config,
                                                         const BackendSet& backends,
                                                         const EngineOptions& options,
                                                         model::Ops& ops) {
  if (!model::keeps_states(config)) return std::optional<RequestStates>();
  std::vector<cache::StateShape> shapes;
  for (int layer = 0; layer < config.num_layers(); ++layer)
    shapes.push_back(model::layer_state(config, layer, dtype_of(backends, layer)));
  Result<cache::StateMemory> memory = memory_of(shapes, ops);
  if (!memory.ok()) return memory.status();
  // Drafts are verified in a second slot, so that a state before them is there to go on from.
  const std::int64_t slots = options.scheduler.max_batch * (options.speculation.enabled() ? 2 : 1);
  Result<cache::StatePool> pool =
      cache::StatePool::make(shapes, static_cast<std::int32_t>(slots), std::move(*memory));
  if (!pool.ok()) return pool.status();
  return std::optional(RequestStates(std::move(*pool)));
}

Status RequestStates::assign(const ScheduledRow& row) {
  Request& request = *row.request;
  for (std::int32_t* const slot : {&request.state_slot, &request.draft_state_slot}) {
    if (*slot >= 0 || (slot == &request.draft_state_slot && row.drafts == 0)) continue;
    const Result<std::int32_t> allocated = pool_.allocate();
    if (!allocated.ok()) return allocated.status();
    *slot = *allocated;
  }
  const auto state = std::static_pointer_cast<const cache::StateSnapshot>(
      std::exchange(request.prefix.state, nullptr));
  return state == nullptr ? Status{} : pool_.restore(request.state_slot, *state);
}

void RequestStates::release(Request& request) {
  for (std::int32_t* const slot : {&request.state_slot, &request.draft_state_slot}) {
    if (*slot < 0) continue;
    if (Status s = pool_.release(*slot); !s.ok()) require(false, s.text());
    *slot = -1;
  }
}

Status RequestStates::keep(Request& request) {
  Result<cache::StateSnapshot> state = pool_.snapshot(request.state_slot);
  if (!state.ok()) return state.status();
  request.prefix.state = std::make_shared<const cache::StateSnapshot>(std::move(*state));
  return {};
}

}  // namespace attune::runtime
