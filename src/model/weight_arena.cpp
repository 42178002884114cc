#include "model/weight_arena.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "base/math.hpp"
#include "device/numa.hpp"

namespace attune::model {

WeightArena::~WeightArena() {
  for (const std::span<std::byte> piece : pieces_) ::munmap(piece.data(), piece.size());
}

std::byte* WeightArena::take(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  constexpr std::size_t kPiece = std::size_t{64} << 20;
  const std::size_t size = base::round_up(bytes, kLine);
  if (pieces_.empty() || pieces_.back().size() - used_ < size) {
    const std::size_t piece = base::round_up(std::max(size, kPiece), kHugePage);
    void* data = ::mmap(nullptr, piece, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    // A kernel without huge pages refuses the advice, and all is well on small ones.
    ::madvise(data, piece, MADV_HUGEPAGE);
    device::spread_over(device::numa_nodes(), std::span(static_cast<std::byte*>(data), piece));
    pieces_.emplace_back(static_cast<std::byte*>(data), piece);
    used_ = 0;
  }
  std::byte* at = pieces_.back().data() + used_;
  used_ += size;
  return at;
}

}  // namespace attune::model
