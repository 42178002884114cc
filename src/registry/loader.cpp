#include "registry/loader.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <filesystem>
#include <iterator>

#include "base/join.hpp"

namespace attune::registry {
namespace {

namespace fs = std::filesystem;
using base::join;

Status plugin_error(std::string text) { return {StatusCode::plugin_error, std::move(text)}; }

std::string last_dl_error() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

struct FingerprintField {
  const char* name;
  std::uint32_t AbiFingerprint::*member;
};

constexpr FingerprintField kFields[] = {
    {"C++ ABI", &AbiFingerprint::cxx_abi},
    {"BackendDescriptor", &AbiFingerprint::descriptor_bytes},
    {"Capability", &AbiFingerprint::capability_bytes},
    {"AttentionSpec", &AbiFingerprint::spec_bytes},
    {"BatchView", &AbiFingerprint::batch_bytes},
    {"LayerCall", &AbiFingerprint::call_bytes},
    {"BackendContext", &AbiFingerprint::context_bytes},
    {"Status", &AbiFingerprint::status_bytes},
    {"LinearFamilyLayers", &AbiFingerprint::family_bytes},
    {"LinearFamilyRecord", &AbiFingerprint::record_bytes},
    {"LinearCall", &AbiFingerprint::linear_call_bytes},
    {"SparseCall", &AbiFingerprint::sparse_call_bytes},
    {"CompressedCall", &AbiFingerprint::compressed_call_bytes},
};
static_assert(sizeof(AbiFingerprint) == std::size(kFields) * sizeof(std::uint32_t),
              "each number of the fingerprint is compared");

template <class T, std::size_t N>
bool same_list(const FixedList<T, N>& a, const FixedList<T, N>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i])) return false;
  return true;
}

bool same_row(const Capability& a, const Capability& b) {
  return a.device == b.device && a.status == b.status && a.isa == b.isa && same_list(a.sm, b.sm) &&
         same_list(a.archs, b.archs) && same_list(a.variants, b.variants) &&
         same_list(a.phases, b.phases) && same_list(a.q_dtypes, b.q_dtypes) &&
         same_list(a.kv_dtypes, b.kv_dtypes) && same_list(a.head_dims, b.head_dims) &&
         a.max_head_dim == b.max_head_dim && a.head_dim_multiple == b.head_dim_multiple &&
         same_list(a.gqa_group_sizes, b.gqa_group_sizes) && same_list(a.page_sizes, b.page_sizes) &&
         a.preferred_page_size == b.preferred_page_size && same_list(a.kv_layouts, b.kv_layouts) &&
         a.features.bits() == b.features.bits();
}

}  // namespace

Result<const PluginEntry*> open_plugin(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    return plugin_error(join("plugin ", path, ": no such file"));
  // A bare name would be looked up in the system's folders.
  const std::string absolute = fs::absolute(path, error).string();
  void* handle = dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return plugin_error(join("plugin ", path, ": ", last_dl_error()));
  const auto entry_function =
      reinterpret_cast<PluginEntryFunction>(dlsym(handle, kPluginEntrySymbol));
  if (entry_function == nullptr)
    return plugin_error(join("plugin ", path, ": does not export ", kPluginEntrySymbol));
  const PluginEntry* entry = entry_function();
  if (entry == nullptr) return plugin_error(join("plugin ", path, ": its entry is null"));
  if (entry->abi != kPluginAbi)
    return plugin_error(join("plugin ", path, ": ABI ", entry->abi, ", wanted ", kPluginAbi,
                             "; build it with this version's headers"));
  constexpr AbiFingerprint kOurs{};
  for (const FingerprintField& field : kFields)
    if (entry->fingerprint.*field.member != kOurs.*field.member)
      return plugin_error(join("plugin ", path, ": built with another ", field.name, " (",
                               entry->fingerprint.*field.member, ", wanted ", kOurs.*field.member,
                               "); build it with this version's headers and compiler"));
  if (entry->num_backends > 0 && entry->backends == nullptr)
    return plugin_error(join("plugin ", path, ": its table of backends is null"));
  if (entry->num_families > 0 && entry->families == nullptr)
    return plugin_error(join("plugin ", path, ": its table of families is null"));
  return entry;
}

std::string find_cuda_library() {
  constexpr const char* kFile = "libattune_cuda.so";
  // The file that holds this very function: libattune.so, or a program it is linked into.
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(&find_cuda_library), &where) == 0 ||
      where.dli_fname == nullptr)
    return {};
  std::error_code error;
  fs::path self = fs::canonical(where.dli_fname, error);
  if (error) self = fs::canonical("/proc/self/exe", error);
  if (error) return {};
  for (const char* beside :
       {".", "../lib", "attune", "../lib/attune", "../lib64", "../lib/x86_64-linux-gnu"}) {
    const fs::path candidate = self.parent_path() / beside / kFile;
    if (fs::is_regular_file(candidate, error)) return fs::canonical(candidate, error).string();
  }
  return {};
}

Result<void*> cuda_library_symbol(const char* symbol) {
  const std::string path = find_cuda_library();
  if (path.empty())
    return unsupported(
        "libattune_cuda.so is not beside this program: build with the CUDA toolkit, or use "
        "--device cpu");
  if (const auto entry = open_plugin(path); !entry.ok()) return entry.status();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, symbol);
  if (found == nullptr)
    return plugin_error(
        join(path, " has no ", symbol, ": build it with the programs (ATTUNE_TOOLS=ON)"));
  return found;
}

bool same_descriptor(const BackendDescriptor& a, const BackendDescriptor& b) {
  if (a.name != b.name || a.capabilities.size() != b.capabilities.size()) return false;
  for (std::size_t i = 0; i < a.capabilities.size(); ++i)
    if (!same_row(a.capabilities[i], b.capabilities[i])) return false;
  return true;
}

}  // namespace attune::registry
