// The backends that serve a model: chosen by the registry, one for prefill and one for decode of
// every group of layers (layer runtime).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <attune/backend.hpp>
#include <attune/device.hpp>
#include <attune/registry.hpp>
#include <attune/spec.hpp>
#include <attune/status.hpp>

#include "model/attention_groups.hpp"
#include "model/config.hpp"

namespace attune::runtime {

/// Who serves a latent group's prompts in expanded form (latent_form.hpp): over the step's own keys
/// and over chunks of a cached prefix.
struct ExpandedBackends {
  std::shared_ptr<Backend> own{};
  std::shared_ptr<Backend> prefix{};  ///< nullptr: only where there is none
  std::string refusal{};              ///< why one of them is missing

  [[nodiscard]] bool usable() const { return own != nullptr; }
};

struct GroupBackends {
  std::shared_ptr<Backend> prefill;
  std::shared_ptr<Backend> decode;  ///< the same object where one serves both
  KvLayout kv_layout = KvLayout::nhd;
  ExpandedBackends expanded{};  ///< of a latent group

  [[nodiscard]] Backend& of(Phase phase) const {
    return phase == Phase::prefill ? *prefill : *decode;
  }
};

struct BackendSet {
  std::int32_t page_size = 16;  ///< of every pool
  /// What the model is made for: the config's groups with their KV type settled, cut where an
  /// override of some layers cuts one.
  std::vector<model::AttentionGroup> attention;
  std::vector<GroupBackends> groups;  ///< one each
  Selection selection;                ///< why, for reports; empty where nobody was asked

  /// Some group's prompts can be expanded.
  [[nodiscard]] bool expands() const {
    return std::ranges::any_of(groups, [](const GroupBackends& g) { return g.expanded.usable(); });
  }
};

struct BackendRequest {
  DeviceInfo device;
  SelectionOptions selection;
  model::GroupDTypes dtypes;     ///< of the groups, before selection settles the KV type
  bool batch_invariant = false;  ///< a request's bits must not depend on its neighbours
};

/// Chooses and makes. A refusal carries every reason met; nothing is opened before all is chosen.
Result<BackendSet> make_backends(const Registry& registry, const model::ModelConfig& config,
                                 const BackendRequest& request, Executor& executor);

}  // namespace attune::runtime
