// The entry of libattune_cuda.so: the table of the CUDA backends this build compiled.
#include <cstddef>

#include "attune_cuda_includes.hpp"

#include <attune/plugin.hpp>

namespace attune {
namespace {

// The first row is a sentinel, so that the table is well formed in a build without any CUDA
// backend.
constexpr PluginBackend kBackends[] = {
    {nullptr, nullptr},
#include "attune_cuda_backends.inc"
};

constexpr PluginEntry kEntry{
    .name = "attune_cuda",
    .backends = kBackends + 1,
    .num_backends = sizeof(kBackends) / sizeof(kBackends[0]) - 1,
};

}  // namespace
}  // namespace attune

extern "C" __attribute__((visibility("default"))) const attune::PluginEntry*
attune_backend_entry_v1() {
  return &attune::kEntry;
}
