// Memory of the host for tensors that are streamed through (layer device): pages of the operating
// system as large as it has them, from all NUMA nodes whose cores may read it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace attune::device {

struct FreeHostBytes {
  void operator()(std::byte* p) const { std::free(p); }
};
using HostBytes = std::unique_ptr<std::byte, FreeHostBytes>;

/// Aligned to 4096 bytes; nullptr where there is none. Not touched here: what is never used costs
/// no resident memory. Large blocks ask for huge pages, on which a KV pool is read up to half again
/// as fast: its pages lie in any order, and on 4 KiB pages each piece of one waits for several
/// address translations.
[[nodiscard]] HostBytes host_bytes(std::size_t bytes);

/// The same, living as long as somebody holds it.
[[nodiscard]] std::shared_ptr<void> host_memory(std::size_t bytes);

}  // namespace attune::device
