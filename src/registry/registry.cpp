#include <attune/registry.hpp>

#include <mutex>

#include "base/join.hpp"
#include "device/runnable.hpp"
#include "registry/catalog.hpp"
#include "registry/descriptor_check.hpp"
#include "registry/loader.hpp"
#include "registry/selection.hpp"

namespace attune {

using base::join;
using registry::CatalogEntry;

struct Registry::State {
  std::vector<std::string> plugin_paths;  ///< that entries' views point into
  std::vector<CatalogEntry> entries;
  std::vector<const BackendDescriptor*> descriptors;
  std::string cuda_library;  ///< empty = there is none
  registry::Catalog catalog;

  std::mutex mutex;  ///< guards what the first make() fills in
  const PluginEntry* cuda = nullptr;
};

namespace {

Status plugin_error(std::string text) { return {StatusCode::plugin_error, std::move(text)}; }

/// What the factory answers, none of which may be nothing.
Result<std::unique_ptr<Backend>> made_by(BackendFactory make, const BackendContext& context,
                                         std::string_view name) {
  auto backend = make(context);
  if (backend.ok() && *backend == nullptr)
    return plugin_error(join("the factory of ", name, " says that it succeeded and made nothing"));
  return backend;
}

bool is_linked_in(const CatalogEntry& entry, DeviceKind device) {
  return entry.make != nullptr && (device == DeviceKind::cpu || !entry.plugin.empty());
}

}  // namespace

Registry::Registry(std::unique_ptr<State> state) : state_(std::move(state)) {}
Registry::Registry(Registry&&) noexcept = default;
Registry& Registry::operator=(Registry&&) noexcept = default;
Registry::~Registry() = default;

Result<Registry> Registry::open(const RegistryOptions& options) {
  auto state = std::make_unique<State>();
  state->cuda_library =
      options.cuda_library.empty() ? registry::find_cuda_library() : options.cuda_library;
  state->plugin_paths = options.plugins;
  const auto in_tree = registry::catalog();
  state->entries.assign(in_tree.begin(), in_tree.end());
  for (const std::string& path : state->plugin_paths) {
    const Result<const PluginEntry*> plugin = registry::open_plugin(path);
    if (!plugin.ok()) return plugin.status();
    for (std::size_t i = 0; i < (*plugin)->num_backends; ++i) {
      const PluginBackend& b = (*plugin)->backends[i];
      if (b.descriptor == nullptr || b.make == nullptr)
        return plugin_error(
            join("plugin ", path, ": its backend ", i, " lacks a descriptor or a factory"));
      for (const CatalogEntry& known : state->entries) {
        bool deprecated = false;
        if (registry::answers_to(*known.descriptor, b.descriptor->name, deprecated))
          return plugin_error(join("plugin ", path, ": the name ", b.descriptor->name,
                                   " is taken by ",
                                   known.plugin.empty() ? "the catalog" : known.plugin));
      }
      if (const std::string wrong = registry::complaint_about(*b.descriptor); !wrong.empty())
        return plugin_error(join("plugin ", path, ": ", wrong));
      state->entries.push_back({b.descriptor, b.make, {}, path});
    }
  }
  for (const CatalogEntry& entry : state->entries) state->descriptors.push_back(entry.descriptor);
  State* raw = state.get();
  state->catalog = {state->entries, [raw](const CatalogEntry& entry, DeviceKind device) {
                      return is_linked_in(entry, device) ||
                             (device == DeviceKind::cuda && !raw->cuda_library.empty());
                    }};
  return Registry(std::move(state));
}

std::span<const BackendDescriptor* const> Registry::list() const { return state_->descriptors; }

Result<const BackendDescriptor*> Registry::find(std::string_view name) const {
  std::vector<std::string> warnings;
  const Result<const CatalogEntry*> entry = registry::find_entry(state_->catalog, name, warnings);
  if (!entry.ok()) return entry.status();
  return (*entry)->descriptor;
}

std::vector<BackendStanding> Registry::standings(const DeviceInfo& device,
                                                 bool assume_built) const {
  std::vector<BackendStanding> list;
  const SelectionOptions options{.assume_built = assume_built};
  for (const CatalogEntry& entry : state_->entries) {
    const registry::Verdict verdict = registry::judge_device(
        *entry.descriptor, device, options, state_->catalog.can_make(entry, device.kind));
    list.push_back({.descriptor = entry.descriptor,
                    .built = entry.descriptor->status() != BackendStatus::not_built,
                    .usable = verdict.accepted(),
                    .reasons = verdict.refusals});
  }
  return list;
}

Selection Registry::explain(const ModelQuery& query, const DeviceInfo& device,
                            const SelectionOptions& options) const {
  return registry::choose(state_->catalog, query, device, options);
}

Result<Selection> Registry::select(const ModelQuery& query, const DeviceInfo& device,
                                   const SelectionOptions& options) const {
  Selection selection = explain(query, device, options);
  if (!selection.status.ok()) return selection.status;
  return selection;
}

Result<std::unique_ptr<Backend>> Registry::make(std::string_view name,
                                                const BackendContext& context) const {
  std::vector<std::string> warnings;
  const Result<const CatalogEntry*> found = registry::find_entry(state_->catalog, name, warnings);
  if (!found.ok()) return found.status();
  if (Status s = device::check_runnable(context.device); !s.ok()) return s;
  const CatalogEntry& entry = **found;
  const DeviceKind device = context.device.kind;
  if (is_linked_in(entry, device)) return made_by(entry.make, context, name);
  if (device != DeviceKind::cuda || state_->cuda_library.empty())
    return unsupported(join(entry.descriptor->name, " cannot be made for ", attune::name(device),
                            " in this build; it needs ", entry.descriptor->needs));

  const std::lock_guard lock(state_->mutex);
  if (state_->cuda == nullptr) {
    const Result<const PluginEntry*> library = registry::open_plugin(state_->cuda_library);
    if (!library.ok()) return library.status();
    state_->cuda = *library;
  }
  for (std::size_t i = 0; i < state_->cuda->num_backends; ++i) {
    const PluginBackend& b = state_->cuda->backends[i];
    if (b.descriptor == nullptr || b.descriptor->name != entry.descriptor->name) continue;
    if (!registry::same_descriptor(*b.descriptor, *entry.descriptor))
      return plugin_error(
          join(state_->cuda_library, ": its ", entry.descriptor->name,
               " declares other capabilities than the catalog: a stale file; build both together"));
    return made_by(b.make, context, name);
  }
  return unsupported(join(state_->cuda_library, " does not hold ", entry.descriptor->name,
                          "; it needs ", entry.descriptor->needs));
}

}  // namespace attune
