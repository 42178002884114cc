// Rows of a block, and the keys they see.
#pragma once

#include <climits>

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
    open_end_ = work_.item->mask_begin >= 0 ? INT_MIN : least_end;
  }

  /// Whether no row of the warp sees a key of the tile at `first`.
  __device__ bool misses(int first) const {
    return first >= seen_end_ || first + Policy::kKeyTile <= seen_begin_;
  }
  /// Whether all of them see all of it.
  __device__ bool is_open(int first) const {
    return open_begin_ <= first && open_end_ >= first + Policy::kKeyTile;
  }

  /// Bit k: the lane's own row sees key first + k.
  __device__ std::uint64_t visible_keys(int first) const {
    const int begin = max(row_begin_ - first, 0);
    const int end = min(row_end_ - first, Policy::kKeyTile);
    if (begin >= end) return 0;
    std::uint64_t bits = ~std::uint64_t{0} >> (64 - (end - begin)) << begin;
    if (work_.item->mask_begin >= 0) bits &= mask_bits(first, end);
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
    return row_of(work_.warp * Policy::kWarpRows + work_.lane % Policy::kWarpRows);
  }

 private:
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
