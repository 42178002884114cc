// Memory of the host for tensors that are streamed through: pages of the operating system as large
// as it has them (layer device).
#pragma once

#include <cstddef>
#include <memory>

namespace attune::device {

/// Memory that lives as long as somebody holds it, aligned to 4096 bytes; nullptr where there is
/// none. Not touched here: what is never used costs no resident memory. Large blocks ask for huge
/// pages, on which a KV pool is read up to half again as fast: its pages lie in any order, and on
/// 4 KiB pages each piece of one waits for several address translations.
[[nodiscard]] std::shared_ptr<void> host_memory(std::size_t bytes);

}  // namespace attune::device
