// A plugin that fits: one backend, whose factory says that this is all it does.
#include <attune/plugin.hpp>

namespace {

using namespace attune;

constexpr BackendDescriptor kDescriptor{
    .name = "example",
    .summary = "A plugin's backend, for tests of the loader",
    .needs = "nothing",
    .capabilities = {{.device = DeviceKind::cpu,
                      .status = BackendStatus::experimental,
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::f32},
                      .kv_dtypes = {DType::f32},
                      .kv_layouts = {KvLayout::nhd}}},
};

Result<std::unique_ptr<Backend>> make(const BackendContext&) {
  return unsupported("the example plugin makes nothing");
}

constexpr PluginBackend kBackends[] = {{&kDescriptor, &make}};
constexpr PluginEntry kEntry{.name = "good", .backends = kBackends, .num_backends = 1};

}  // namespace

extern "C" const attune::PluginEntry* attune_backend_entry_v1() { return &kEntry; }
