#include "device/host_memory.hpp"

#include <sys/mman.h>

#include <span>

#include "base/math.hpp"
#include "device/numa.hpp"

namespace attune::device {

HostBytes host_bytes(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const bool large = bytes >= 2 * kHugePage;
  const std::size_t alignment = large ? kHugePage : kPage;
  const std::size_t size = base::round_up(bytes == 0 ? 1 : bytes, alignment);
  HostBytes memory(static_cast<std::byte*>(std::aligned_alloc(alignment, size)));
  if (memory == nullptr || !large) return memory;
  // A kernel without huge pages refuses the advice, and all is well on small ones.
  ::madvise(memory.get(), size, MADV_HUGEPAGE);
  spread_over(numa_nodes(), std::span(memory.get(), size));
  return memory;
}

std::shared_ptr<void> host_memory(std::size_t bytes) { return host_bytes(bytes); }

}  // namespace attune::device
