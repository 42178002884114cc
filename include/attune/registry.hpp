// The registry: which attention backends there are, which one serves what, and why the others do
// not (layer registry).
//
//   Result<Registry> registry = Registry::open({});
//   Result<Selection> chosen =
//       registry->select({.groups = {{.kind = "full", .spec = spec}}}, cpu_device(), {});
//   if (!chosen.ok()) …                                // chosen.status().refusals() says why
//   const GroupSelection& group = chosen->groups[0];
//   Result<std::unique_ptr<Backend>> backend = registry->make(
//       group.of(Phase::decode)->backend,
//       {.spec = group.group.spec, .device = device, .page_size = group.page_size,
//        .kv_layout = *group.kv_layout, .executor = threads.get()});
//
// Listing, explaining and selecting open no library; the first make() of a GPU backend does. A
// backend that the caller names is never replaced; an automatic choice passes over what refuses and
// keeps the reason. A Registry is not changed by its const members, which may be called from several
// threads.
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
  /// As in config.json, e.g. GptOssForCausalLM; empty = no rules of models apply.
  std::string architecture{};
  std::vector<LayerGroup> groups{};
};

/// What an automatic choice may do when its first choice refuses: take the next one, take it with a
/// line in Selection::warnings, or fail.
enum class FallbackPolicy : std::uint8_t { allow, warn, forbid };

/// Layers first … last, whatever their kind, are served by `backend`.
struct LayerOverride {
  int first = 0;
  int last = 0;
  std::string backend{};
};

/// The caller's wishes. The defaults leave everything to the registry.
struct SelectionOptions {
  std::string prefill = "auto";  ///< a name, an alias, or auto
  std::string decode = "auto";
  std::vector<LayerOverride> layers{};
  std::int32_t page_size = 0;       ///< tokens; 0 = what the chosen backends prefer
  std::optional<DType> kv_dtype{};  ///< empty = that of the groups' specs, or of a model's rule
  FallbackPolicy fallback = FallbackPolicy::warn;
  bool assume_built = false;  ///< answer as if every catalog row had its kernel
  int speculative_topk = 0;   ///< 0 = no speculation; 1 = a chain; more = a tree of draft tokens
  bool prefix_cache = true;   ///< prefixes are reused across requests
  FeatureSet required{};      ///< beyond what the specs ask: deterministic, cuda_graph, …
};

/// Why a backend was taken: by name, by a rule for the model's architecture, as the first of the
/// device's preferences, or behind one that refused. docs/selection.md has the rules and preferences.
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

/// Who serves one phase of one group.
struct PhaseSelection {
  Phase phase = Phase::prefill;
  std::string backend{};  ///< empty where nobody can serve
  ChosenBy chosen_by = ChosenBy::nobody;
  std::string why{};  ///< a phrase for people, e.g. "row cpu / gqa / decode, place 1"
  std::vector<Consideration> considered{};  ///< candidates in order, then the rest of the catalog
};

/// What an engine needs to build a group's cache and backends.
struct GroupSelection {
  LayerGroup group{};                    ///< with the KV dtype that was settled on
  std::vector<PhaseSelection> phases{};  ///< prefill and decode; an encoder has no decode
  std::int32_t page_size = 0;            ///< tokens; 0 for linear variants
  std::optional<KvLayout> kv_layout{};   ///< shared by both phases; empty for linear variants

  /// Null where the group has no such phase.
  [[nodiscard]] const PhaseSelection* of(Phase phase) const {
    for (const PhaseSelection& p : phases)
      if (p.phase == phase) return &p;
    return nullptr;
  }
};

/// The answer for a whole model.
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
  std::vector<std::string> plugins{};  ///< paths of shared objects with backends of their own
};

/// Whether one backend can serve anything on one device.
struct BackendStanding {
  const BackendDescriptor* descriptor = nullptr;
  bool built = false;              ///< some row for this kind of device is
  bool usable = false;             ///< … and this device satisfies it
  std::vector<Refusal> reasons{};  ///< where it is not
};

/// The backends of this build and of its plugins.
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

  /// Every backend of list() on `device`, in its order.
  [[nodiscard]] std::vector<BackendStanding> standings(const DeviceInfo& device,
                                                       bool assume_built = false) const;

  /// Every choice and every refusal; never fails (a wrong name or override is in
  /// Selection::status).
  [[nodiscard]] Selection explain(const ModelQuery& query, const DeviceInfo& device,
                                  const SelectionOptions& options) const;

  /// The same as a failure, unsupported with every refusal, where some group has no backend.
  [[nodiscard]] Result<Selection> select(const ModelQuery& query, const DeviceInfo& device,
                                         const SelectionOptions& options) const;

  /// Makes a backend by name or alias; opens its library if that is the first time. Whatever its
  /// factory says is passed on; a library that cannot be opened is named with the loader's reason.
  [[nodiscard]] Result<std::unique_ptr<Backend>> make(std::string_view name,
                                                      const BackendContext& context) const;

 private:
  struct State;
  explicit Registry(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attune
