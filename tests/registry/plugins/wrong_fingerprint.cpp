#include <attune/plugin.hpp>

namespace {
constexpr attune::PluginEntry kEntry{.fingerprint = {.spec_bytes = 1}, .name = "wrong_fingerprint"};
}

extern "C" const attune::PluginEntry* attune_backend_entry_v1() { return &kEntry; }
