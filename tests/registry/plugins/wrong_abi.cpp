#include <attune/plugin.hpp>

namespace {
constexpr attune::PluginEntry kEntry{.abi = 999, .name = "wrong_abi"};
}

extern "C" const attune::PluginEntry* attune_backend_entry_v1() { return &kEntry; }
