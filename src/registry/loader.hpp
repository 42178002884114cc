// Opens libraries of backends: libattune_cuda.so on first need, plugins when they are named (layer
// registry). What is opened stays open: a backend's code must outlive every object it made.
#pragma once

#include <string>

#include <attune/plugin.hpp>
#include <attune/status.hpp>

namespace attune::registry {

/// Opens `path` and checks ABI number and fingerprint before anything else in it is read.
[[nodiscard]] Result<const PluginEntry*> open_plugin(const std::string& path);

/// libattune_cuda.so beside this library or program; empty where there is none.
[[nodiscard]] std::string find_cuda_library();

/// What libattune_cuda.so exports beside its table of backends, for the parts of the program that
/// work on a GPU without one. Opens the library, and checks it, if nobody has; it stays open.
[[nodiscard]] Result<void*> cuda_library_symbol(const char* symbol);

/// Field by field: a library built from another catalog is stale, and says so.
[[nodiscard]] bool same_descriptor(const BackendDescriptor& a, const BackendDescriptor& b);

}  // namespace attune::registry
