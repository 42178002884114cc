// A mask by blocks as kernels and the oracle read it (layer attention).
#pragma once

#include <cstdint>

#include <attune/batch.hpp>

namespace attune::attention {

/// BlockMaskView by bare addresses; none given: no mask.
struct BlockTable {
  int num_heads = 0;
  const std::int64_t* indptr = nullptr;
  const std::int32_t* blocks = nullptr;
  const std::uint8_t* bits = nullptr;

  [[nodiscard]] bool given() const { return indptr != nullptr; }

  /// Entries of the blocks of keys that `query`, counted within its request, meets.
  [[nodiscard]] const std::int32_t* row(std::int64_t request, std::int64_t head, std::int64_t query,
                                        std::int64_t kv_len) const {
    const std::int64_t first = indptr[request];
    const std::int64_t of_head = num_heads == 1 ? 0 : (indptr[request + 1] - first) / num_heads;
    return blocks + first + head * of_head + query / kMaskBlock * columns(kv_len);
  }
  /// Blocks of keys of a request.
  [[nodiscard]] static constexpr std::int64_t columns(std::int64_t kv_len) {
    return (kv_len + kMaskBlock - 1) / kMaskBlock;
  }
  /// First bit, from `bits` of its block on, of a query's keys from key index `key` on.
  [[nodiscard]] static constexpr std::int64_t first_bit(std::int64_t query, std::int64_t key) {
    return query % kMaskBlock * kMaskBlock + key % kMaskBlock;
  }
  [[nodiscard]] const std::uint8_t* bits_of(std::int32_t block) const {
    return bits + block * kMaskBlockBytes;
  }

  [[nodiscard]] bool sees(std::int64_t request, std::int64_t head, std::int64_t query,
                          std::int64_t key, std::int64_t kv_len) const {
    const std::int32_t block = row(request, head, query, kv_len)[key / kMaskBlock];
    if (block < 0) return block == kWholeBlock;
    const std::int64_t bit = first_bit(query, key);
    return (bits_of(block)[bit / 8] >> (bit % 8) & 1) != 0;
  }
};

}  // namespace attune::attention
