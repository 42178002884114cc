// A block's queries in shared memory.
#pragma once

#include <cstdint>

#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ragged_prefill/sm80/fragments.cuh"
#include "kernels/ragged_prefill/sm80/key_ring.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

template <class Policy>
class QueryRows {
  using Queries = typename Policy::Queries;

 public:
  __device__ QueryRows(const Work& work, std::uint8_t* rows) : work_(work), rows_(rows) {}

  [[nodiscard]] __device__ const std::uint8_t* rows() const { return rows_; }

  /// Starts copying the item's; what no row owns becomes zero unread.
  __device__ void copy() const {
    using S = CopyShape<Queries, Policy::kRows, Policy::kThreads>;
    const int column = threadIdx.x % S::kColumns;
    const int first = threadIdx.x / S::kColumns;
    if (S::kTurns == 1 && S::kColumns != Queries::kUnits && column >= Queries::kUnits) return;
#pragma unroll 4
    for (int row = first; row < Policy::kRows; row += S::kRowsAtOnce) {
      const int packed = work_.item->row_begin + row;
      const auto token =
          static_cast<int>(base::divide(static_cast<std::uint32_t>(packed), work_.p.group));
      const int head =
          work_.kv_head * work_.p.gqa_group_size + packed - token * work_.p.gqa_group_size;
      const bool valid = token < work_.item->qo_len;
      const std::int64_t from = (work_.item->q_row + static_cast<std::int64_t>(valid ? token : 0)) *
                                    work_.p.q_token_stride +
                                (valid ? head : 0) * work_.p.q_head_stride;
#pragma unroll
      for (int turn = 0; turn < S::kTurns; ++turn) {
        const int unit = column + turn * S::kColumns;
        const bool in_row = !Policy::kPadded || unit * 16 < work_.p.head_dim_qk * 2;
        ptx::cp_async_16(rows_ + row * Queries::kBytes + (unit ^ Queries::mix(row)) * 16,
                         static_cast<const char*>(work_.p.q) + 2 * from + unit * 16,
                         valid && in_row);
      }
    }
  }

  /// bf16 queries of fp8 keys become fp16; each warp's what it multiplies. Units change places
  /// within a warp's part of the head dim only.
  __device__ void convert() const {
    if (work_.p.q_element != Element::bf16) return;
    constexpr int kRowPairs = Policy::kDimQk / 2;
    constexpr int kPartPairs = kRowPairs / Policy::kDimParts;
    auto* pairs = reinterpret_cast<std::uint32_t*>(rows_) + work_.first_row<Policy>() * kRowPairs +
                  work_.dim_part<Policy>() * kPartPairs;
    for (int i = work_.lane; i < Policy::kWarpRows * kPartPairs; i += 32) {
      const int at = i / kPartPairs * kRowPairs + i % kPartPairs;
      // Beyond fp16's range a query saturates.
      const float low = fminf(fmaxf(__uint_as_float(pairs[at] << 16), -65504.0f), 65504.0f);
      const float high =
          fminf(fmaxf(__uint_as_float(pairs[at] & 0xffff0000u), -65504.0f), 65504.0f);
      pairs[at] = ptx::pack_pair<__half>(low, high);
    }
    __syncwarp();
  }

 private:
  const Work& work_;
  std::uint8_t* rows_;
};

}  // namespace attune::kernels::ragged_prefill::sm80
