#include "device/host_memory.hpp"

#include <sys/mman.h>

#include <cstdlib>

#include "base/math.hpp"

namespace attune::device {

std::shared_ptr<void> host_memory(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const bool large = bytes >= 2 * kHugePage;
  const std::size_t alignment = large ? kHugePage : kPage;
  const std::size_t size = base::round_up(bytes == 0 ? 1 : bytes, alignment);
  std::shared_ptr<void> memory(std::aligned_alloc(alignment, size), [](void* p) { std::free(p); });
  // A kernel without huge pages refuses the advice, and all is well on small ones.
  if (memory != nullptr && large) ::madvise(memory.get(), size, MADV_HUGEPAGE);
  return memory;
}

}  // namespace attune::device
