// Rows of a block, and the keys they see.
#pragma once

#include <climits>

#include "attention/block_table.hpp"
#include "attention/mask.hpp"
#include "kernels/ragged_prefill/sm80/fragments.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

/// A query token and head, and what it sees.
struct Row {
  bool valid = false;
  int token = 0;  ///< counted from the item's first
  int head = 0;   ///< query head
  int begin = 0;  ///< visible keys of the item, counted from the page table's first
  int end = 0;
  int position = 0;  ///< counted alike
  float temperature = 1.0f;
  float slope_log2 = 0.0f;
};

/// Each lane keeps the bounds of one row of its warp; warps know what any of their rows sees and
/// what all of them do.
template <class Policy>
class Sight {
 public:
  __device__ explicit Sight(const Work& work) : work_(work) {
    const Row own = own_row();
    row_begin_ = own.begin;
    row_end_ = own.end;
    const bool empty = own.begin >= own.end;
    int least_begin = empty ? INT_MAX : own.begin;
    int most_end = empty ? INT_MIN : own.end;
    int most_begin = own.valid ? own.begin : INT_MIN;
    int least_end = own.valid ? own.end : INT_MAX;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
      least_begin = min(least_begin, __shfl_xor_sync(kAllLanes, least_begin, apart));
      most_end = max(most_end, __shfl_xor_sync(kAllLanes, most_end, apart));
      most_begin = max(most_begin, __shfl_xor_sync(kAllLanes, most_begin, apart));
      least_end = min(least_end, __shfl_xor_sync(kAllLanes, least_end, apart));
    }
    seen_begin_ = least_begin;
    seen_end_ = most_end;
    open_begin_ = most_begin;
    open_end_ = !Policy::kBlocks && work_.item->mask_begin >= 0 ? INT_MIN : least_end;
  }

  /// Whether no row of the warp sees a key of the tile at `first`.
  __device__ bool misses(int first) const {
    const bool outside = first >= seen_end_ || first + Policy::kKeyTile <= seen_begin_;
    if constexpr (Policy::kBlocks) return outside || every_block_is(kHiddenBlock, first);
    return outside;
  }
  /// Whether all of them see all of it.
  __device__ bool is_open(int first) const {
    const bool inside = open_begin_ <= first && open_end_ >= first + Policy::kKeyTile;
    if constexpr (Policy::kBlocks) return inside && every_block_is(kWholeBlock, first);
    return inside;
  }

  /// Bit k: the lane's own row sees key first + k.
  __device__ std::uint64_t visible_keys(int first) const {
    const int begin = max(row_begin_ - first, 0);
    const int end = min(row_end_ - first, Policy::kKeyTile);
    if (begin >= end) return 0;
    std::uint64_t bits = ~std::uint64_t{0} >> (64 - (end - begin)) << begin;
    if constexpr (Policy::kBlocks)
      bits &= block_bits(first);
    else if (work_.item->mask_begin >= 0)
      bits &= mask_bits(first, end);
    return bits;
  }

  __device__ Row row_of(int row_of_block) const {
    const attention::PrefillItem& item = *work_.item;
    Row r;
    const int packed = item.row_begin + row_of_block;
    r.token = static_cast<int>(base::divide(static_cast<std::uint32_t>(packed), work_.p.group));
    r.head = work_.kv_head * work_.p.gqa_group_size + packed - r.token * work_.p.gqa_group_size;
    r.valid = r.token < item.qo_len;
    if (item.shared != 0) {
      const attention::TokenRule rule = work_.p.rules[item.q_row + (r.valid ? r.token : 0)];
      r.begin = rule.begin;
      r.end = rule.end;
      r.position = rule.position;
      r.temperature = rule.temperature;
    } else {
      r.position = item.kv_len - item.qo_len + r.token;
      const std::int64_t position = item.first_position + r.position;
      const attention::KeyRange keys = attention::visible_range(
          work_.p.rule, position, item.first_position, item.first_position + item.kv_len);
      r.begin = static_cast<int>(keys.begin - item.first_position);
      r.end = static_cast<int>(keys.end - item.first_position);
      if (work_.p.xai_temperature_len > 0 && position > work_.p.xai_temperature_len)
        r.temperature = __log2f(static_cast<float>(position)) /
                        __log2f(static_cast<float>(work_.p.xai_temperature_len));
    }
    r.begin = max(r.begin, item.kv_begin);
    r.end = r.valid ? min(r.end, item.kv_end) : r.begin;
    if (work_.p.alibi_slopes != nullptr && r.valid)
      r.slope_log2 = work_.p.alibi_slopes[r.head] * kLog2E;
    return r;
  }

  /// The row of the warp that this lane keeps the bounds of.
  __device__ Row own_row() const {
    return row_of(work_.first_row<Policy>() + work_.lane % Policy::kWarpRows);
  }

 private:
  /// Of the block that a row meets the tile at `first` in. A tile lies in one block.
  __device__ std::int32_t block_of(const Row& row, int first) const {
    static_assert(kMaskBlock % Policy::kKeyTile == 0);
    const attention::PrefillItem& item = *work_.item;
    const std::int64_t columns = attention::BlockTable::columns(item.kv_len);
    const std::int64_t head = work_.p.block_heads == 1 ? 0 : row.head;
    const std::int64_t rows = attention::BlockTable::columns(item.qo_len);
    return __ldg(work_.p.blocks + item.mask_begin +
                 (head * rows + row.token / kMaskBlock) * columns + first / kMaskBlock);
  }

  /// Whether all rows of the warp meet the tile at `first` in blocks of one kind.
  __device__ bool every_block_is(std::int32_t kind, int first) const {
    const Row own = own_row();
    return __all_sync(kAllLanes, !own.valid || block_of(own, first) == kind) != 0;
  }

  /// The lane's row's bits for the keys of the tile at `first`.
  __device__ std::uint64_t block_bits(int first) const {
    const Row own = own_row();
    const std::int32_t block = block_of(own, first);
    if (block < 0) return block == kWholeBlock ? ~std::uint64_t{0} : 0;
    static_assert(Policy::kKeyTile % 32 == 0);
    const auto* words = reinterpret_cast<const std::uint32_t*>(
        work_.p.block_bits + block * kMaskBlockBytes +
        attention::BlockTable::first_bit(own.token, first) / 8);
    std::uint64_t bits = __ldg(words);
    if constexpr (Policy::kKeyTile > 32) bits |= std::uint64_t{__ldg(words + 1)} << 32;
    return bits;
  }

  /// The request's mask for the lane's row and keys first … first + count - 1; other bits are any.
  __device__ std::uint64_t mask_bits(int first, int count) const {
    const auto token = static_cast<std::int64_t>(own_row().token);
    const std::int64_t bit = token * work_.item->kv_len + first;
    const int shift = static_cast<int>(bit % 8);
    const std::uint8_t* bytes = work_.p.custom_mask + work_.item->mask_begin + bit / 8;
    std::uint64_t bits = 0;
#pragma unroll
    for (int i = 0; i < 9; ++i) {
      const std::uint64_t byte = 8 * i < shift + count ? __ldg(bytes + i) : 0;
      bits |= 8 * i >= shift ? byte << (8 * i - shift) : byte >> (shift - 8 * i);
    }
    return bits;
  }

  const Work& work_;
  int row_begin_;  ///< keys that the lane's own row sees
  int row_end_;
  int seen_begin_ = 0;  ///< keys that any row of the warp sees lie in between
  int seen_end_ = 0;
  int open_begin_ = 0;  ///< keys that all of them see
  int open_end_ = 0;
};

}  // namespace attune::kernels::ragged_prefill::sm80
