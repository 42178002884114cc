// Why a backend may not serve: about fifteen rules, each a name, a test and two texts (layer
// registry). Each refusal comes from exactly one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/registry.hpp>

#include "registry/condition.hpp"

namespace attune::registry {

/// Everything a rule may look at: one capability row held against one request.
struct RuleInput {
  const BackendDescriptor& backend;
  const Capability& row;
  const AttentionSpec& spec;
  Phase phase;
  const DeviceInfo& device;
  const SelectionOptions& options;
  const ModelFacts& model;
  bool can_make;  ///< a factory is linked in, or the library that holds one is there
};

struct Rule {
  std::string_view name;
  bool of_variant;  ///< compares numbers that mean something only for a row of the same variant
  bool (*holds)(const RuleInput&);
  std::string (*wanted)(const RuleInput&);  ///< what the backend (or the model) wants
  std::string (*have)(const RuleInput&);
};

[[nodiscard]] std::span<const Rule> rules();

struct Verdict {
  const Capability* row = nullptr;  ///< the first row that accepts, or the one that came nearest
  std::vector<const Capability*> accepting;
  std::vector<Refusal> refusals;
  [[nodiscard]] bool accepted() const { return refusals.empty(); }
  /// Nothing but a missing kernel stands in the way.
  [[nodiscard]] bool only_unbuilt() const;
};

/// What is asked, apart from the backend.
struct Request {
  const AttentionSpec& spec;
  Phase phase;
  const DeviceInfo& device;
  const SelectionOptions& options;
  const ModelFacts& model;
};

/// `backend` against `request`: every row that accepts, else the refusals of the nearest row.
[[nodiscard]] Verdict judge(const BackendDescriptor& backend, const Request& request,
                            bool can_make);

/// Only what the device decides: for listing without a model.
[[nodiscard]] Verdict judge_device(const BackendDescriptor& backend, const DeviceInfo& device,
                                   const SelectionOptions& options, bool can_make);

/// "1, 2 or 3"
[[nodiscard]] std::string one_of(const std::vector<std::string>& words);

}  // namespace attune::registry
