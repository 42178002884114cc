// What a shared object of backends exports: libattune_cuda.so and out-of-tree plugins alike (layer
// attention).
//
//   extern "C" const attune::PluginEntry* attune_backend_entry_v1() { return &kEntry; }
//
// The loader opens the file once with RTLD_NOW | RTLD_LOCAL, compares ABI number and fingerprint,
// compares each descriptor of a catalog name with the catalog's own, and never closes it. A plugin
// needs no symbol from Attune.
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/linear_family.hpp>
#include <attune/linear_state.hpp>
#include <attune/sparse_call.hpp>

namespace attune {

inline constexpr std::uint32_t kPluginAbi = 2;

/// Changes whenever a struct that crosses the border changes shape, or the compiler's C++ ABI does.
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
  [[nodiscard]] constexpr bool operator==(const AbiFingerprint&) const = default;
};

struct PluginBackend {
  const BackendDescriptor* descriptor = nullptr;
  BackendFactory make = nullptr;
};

struct PluginEntry {
  std::uint32_t abi = kPluginAbi;
  AbiFingerprint fingerprint{};
  const char* name = "";  ///< of the plugin, for messages
  const PluginBackend* backends = nullptr;
  std::size_t num_backends = 0;
  const LinearFamilyRecord* families = nullptr;
  std::size_t num_families = 0;
};

using PluginEntryFunction = const PluginEntry* (*)();
inline constexpr const char* kPluginEntrySymbol = "attune_backend_entry_v1";

}  // namespace attune
