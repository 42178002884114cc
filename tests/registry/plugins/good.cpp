// A plugin that fits. The factory of its one backend refuses, but for pages of kNothing tokens, where
// it claims to have made what it has not.
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

constexpr std::int32_t kNothing = 7;

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  if (context.page_size == kNothing) return std::unique_ptr<Backend>();
  return unsupported("the example plugin makes nothing");
}

constexpr PluginBackend kBackends[] = {{&kDescriptor, &make}};
constexpr PluginEntry kEntry{.name = "good", .backends = kBackends, .num_backends = 1};

}  // namespace

extern "C" const attune::PluginEntry* attune_backend_entry_v1() { return &kEntry; }
