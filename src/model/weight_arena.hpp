// Memory for converted weights (layer model): large pieces on huge pages, handed out one after the
// other and given back together. Products stream through it; on 4 KiB pages every 64th cache line
// would wait for a translation.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace attune::model {

class WeightArena {
 public:
  WeightArena() = default;
  ~WeightArena();
  WeightArena(const WeightArena&) = delete;
  WeightArena& operator=(const WeightArena&) = delete;

  /// Aligned to 64 bytes, full of zeros; nullptr where there is no memory. Untouched memory costs
  /// nothing.
  [[nodiscard]] std::byte* take(std::size_t bytes);

 private:
  std::vector<std::span<std::byte>> pieces_;
  std::size_t used_ = 0;  ///< of the last piece
};

}  // namespace attune::model
