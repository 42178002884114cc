#include <attune/plugin.hpp>

namespace {

using namespace attune;

constexpr BackendDescriptor kDescriptor{
    .name = "nsa", .summary = "takes the name of a catalog entry's alias", .capabilities = {}};

Result<std::unique_ptr<Backend>> make(const BackendContext&) { return unsupported("nothing"); }

constexpr PluginBackend kBackends[] = {{&kDescriptor, &make}};
constexpr PluginEntry kEntry{.name = "taken_name", .backends = kBackends, .num_backends = 1};

}  // namespace

extern "C" const attune::PluginEntry* attune_backend_entry_v1() { return &kEntry; }
