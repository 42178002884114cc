// The registry: which attention backends there are, which one serves what, and why the others do
// not (layer registry).
//
//   Result<Registry> registry = Registry::open({});
//   Result<Selection> chosen = registry->select({.groups = {{.kind = "full", .spec = spec}}},
//   device, {}); Result<std::unique_ptr<Backend>> backend = registry->make(chosen->groups[0],
//   Phase::decode, context);
//
// Listing, explaining and selecting open no library; the first make() of a GPU backend does. An
// explicit name is never replaced; an automatic choice passes over what refuses, with the reason
// kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/device.hpp>
#include <attune/spec.hpp>
#include <attune/status.hpp>

namespace attune {

/// Layers that ask the same of attention.
struct LayerGroup {
  std::vector<int> layers{};  ///< ascending; of the encoder if `encoder`
  std::string kind{};         ///< full, sliding, …, gdn, …: the word `explain` prints
  AttentionSpec spec{};
  bool encoder = false;
};

/// What selection must know of a model. One group and no architecture is an embedder's ordinary
/// query.
struct ModelQuery {
  std::string
      architecture{};  ///< as in config.json, e.g. GptOssForCausalLM; empty = no model rules
  std::vector<LayerGroup> groups{};
};

/// What an automatic choice may do when its first choice refuses.
enum class FallbackPolicy : std::uint8_t { allow, warn, forbid };

/// Layers first … last, whatever their kind, are served by `backend`.
struct LayerOverride {
  int first = 0;
  int last = 0;
  std::string backend{};
};

struct SelectionOptions {
  std::string prefill = "auto";  ///< a name, an alias, or auto
  std::string decode = "auto";
  std::vector<LayerOverride> layers{};
  std::int32_t page_size = 0;       ///< 0 = auto
  std::optional<DType> kv_dtype{};  ///< empty = the groups' own, or a model rule's
  FallbackPolicy fallback = FallbackPolicy::warn;
  bool assume_built = false;  ///< answer as if every catalog row had its kernel
  int speculative_topk = 0;   ///< 0 = no speculation; 1 = a chain; more = a tree of draft tokens
  bool prefix_cache = true;   ///< prefixes are reused across requests
  FeatureSet required{};      ///< beyond what the specs ask: deterministic, cuda_graph, …
};

enum class ChosenBy : std::uint8_t { nobody, user, model_rule, preference, fallback };

[[nodiscard]] constexpr std::string_view name(ChosenBy by) {
  switch (by) {
    case ChosenBy::nobody: return "nobody";
    case ChosenBy::user: return "user";
    case ChosenBy::model_rule: return "model_rule";
    case ChosenBy::preference: return "preference";
    case ChosenBy::fallback: return "fallback";
  }
  return "?";
}

/// One backend held against one group and phase.
struct Consideration {
  std::string name{};
  bool accepted = false;
  std::vector<Refusal> refusals{};
};

struct PhaseSelection {
  Phase phase = Phase::prefill;
  std::string backend{};  ///< empty where nobody can serve
  ChosenBy chosen_by = ChosenBy::nobody;
  std::string why{};
  std::vector<Consideration> considered{};  ///< candidates in order, then the rest of the catalog
};

struct GroupSelection {
  LayerGroup group{};                    ///< with the KV dtype that was settled on
  std::vector<PhaseSelection> phases{};  ///< prefill and decode; an encoder has no decode
  std::int32_t page_size = 0;            ///< 0 for linear variants
  std::optional<KvLayout> kv_layout{};

  [[nodiscard]] const PhaseSelection* of(Phase phase) const {
    for (const PhaseSelection& p : phases)
      if (p.phase == phase) return &p;
    return nullptr;
  }
};

struct Selection {
  std::vector<GroupSelection> groups{};  ///< the query's, split where an override cuts one
  std::int32_t page_size = 0;            ///< shared by every group that has pages; 0 = none has
  std::vector<std::string> warnings{};   ///< deprecated names, fallbacks
  int fallbacks = 0;
  Status status{};  ///< unsupported, with every refusal of the groups nobody serves
};

struct RegistryOptions {
  std::string
      cuda_library{};  ///< path of libattune_cuda.so; empty = beside this library or program
  std::vector<std::string> plugins{};  ///< shared objects with backends of their own
};

/// How one backend stands on one device.
struct BackendStanding {
  const BackendDescriptor* descriptor = nullptr;
  bool built = false;  ///< some row for this device's kind is
  bool usable = false;
  std::vector<Refusal> reasons{};
};

class Registry {
 public:
  /// Opens the plugins (never libattune_cuda.so); one that does not fit is a plugin_error.
  [[nodiscard]] static Result<Registry> open(const RegistryOptions& options);

  Registry(Registry&&) noexcept;
  Registry& operator=(Registry&&) noexcept;
  ~Registry();

  /// Every backend, in catalog order, plugins last.
  [[nodiscard]] std::span<const BackendDescriptor* const> list() const;

  /// By name or alias; an unknown one is an invalid_argument that holds the nearest names.
  [[nodiscard]] Result<const BackendDescriptor*> find(std::string_view name) const;

  [[nodiscard]] std::vector<BackendStanding> standings(const DeviceInfo& device,
                                                       bool assume_built = false) const;

  /// Every choice and every refusal; never fails (a wrong name or override is in
  /// Selection::status).
  [[nodiscard]] Selection explain(const ModelQuery& query, const DeviceInfo& device,
                                  const SelectionOptions& options) const;

  /// The same, as a failure where some group has no backend.
  [[nodiscard]] Result<Selection> select(const ModelQuery& query, const DeviceInfo& device,
                                         const SelectionOptions& options) const;

  /// Makes a backend; opens its library if that is the first time.
  [[nodiscard]] Result<std::unique_ptr<Backend>> make(std::string_view name,
                                                      const BackendContext& context) const;

 private:
  struct State;
  explicit Registry(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attune
