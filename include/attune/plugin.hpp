// What a shared object of backends exports: libattune_cuda.so and out-of-tree plugins alike (layer
// attention). examples/plugin/plain.cpp is a whole one.
//
//   constexpr attune::PluginBackend kBackends[] = {{&kDescriptor, &make}};
//   constexpr attune::PluginEntry kEntry{.name = "mine", .backends = kBackends, .num_backends = 1};
//   extern "C" const attune::PluginEntry* attune_backend_entry_v1() { return &kEntry; }
//
// The loader opens the file once, with RTLD_NOW | RTLD_LOCAL, and never closes it. It refuses
// (plugin_error, with what it wanted and found) another ABI number or fingerprint, a name that the
// catalog or another plugin has already, and a catalog backend whose descriptor differs from the
// catalog's. A plugin needs no symbol from Attune.
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/backend.hpp>
#include <attune/compressed_call.hpp>
#include <attune/descriptor.hpp>
#include <attune/linear_family.hpp>
#include <attune/linear_state.hpp>
#include <attune/sparse_call.hpp>

namespace attune {

/// Raised whenever a struct's members change their meaning but not its size.
inline constexpr std::uint32_t kPluginAbi = 2;

/// Differs whenever a struct that crosses the border changes its size, or the compiler's C++ ABI does.
struct AbiFingerprint {
  std::uint32_t cxx_abi = __GXX_ABI_VERSION;
  std::uint32_t descriptor_bytes = sizeof(BackendDescriptor);
  std::uint32_t capability_bytes = sizeof(Capability);
  std::uint32_t spec_bytes = sizeof(AttentionSpec);
  std::uint32_t batch_bytes = sizeof(BatchView);
  std::uint32_t call_bytes = sizeof(LayerCall);
  std::uint32_t context_bytes = sizeof(BackendContext);
  std::uint32_t status_bytes = sizeof(Status);
  std::uint32_t family_bytes = sizeof(LinearFamilyLayers);
  std::uint32_t record_bytes = sizeof(LinearFamilyRecord);
  std::uint32_t linear_call_bytes = sizeof(LinearCall);
  std::uint32_t sparse_call_bytes = sizeof(SparseCall);
  std::uint32_t compressed_call_bytes = sizeof(CompressedCall);
  [[nodiscard]] constexpr bool operator==(const AbiFingerprint&) const = default;
};

/// Both live as long as the process.
struct PluginBackend {
  const BackendDescriptor* descriptor = nullptr;
  BackendFactory make = nullptr;
};

/// What attune_backend_entry_v1 returns. Leave `abi` and `fingerprint` at their defaults: they record
/// the headers that the plugin was compiled with.
struct PluginEntry {
  std::uint32_t abi = kPluginAbi;
  AbiFingerprint fingerprint{};
  const char* name = "";  ///< of the plugin, for messages
  const PluginBackend* backends = nullptr;
  std::size_t num_backends = 0;
  const LinearFamilyRecord* families = nullptr;  ///< <attune/linear_family.hpp>
  std::size_t num_families = 0;
};

using PluginEntryFunction = const PluginEntry* (*)();
inline constexpr const char* kPluginEntrySymbol = "attune_backend_entry_v1";

}  // namespace attune
