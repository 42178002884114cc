// What the kernels of absorbed latent attention receive (layer kernels): plain structs that the
// backend fills on the host and the kernels read on the device.
//
// Rows of a request are (token, head), in blocks of `block_rows`: a block is `tokens_per_block`
// neighbouring tokens of `heads_per_block` neighbouring heads; blocks run heads first.
#pragma once

#include <cstdint>

#include "attention/latent_list.hpp"

namespace attune::kernels::mla_decode {

/// What Hopper's kernel is made for; sm80/kernel.cuh has a body for other widths.
inline constexpr int kDimQk = 576;
inline constexpr int kDimVo = 512;

/// Strides count elements; those of packed keys bytes.
struct Params {
  const void* q = nullptr;  ///< [q_tokens, num_heads, dim_qk]
  std::int64_t q_tokens = 0;
  std::int64_t q_token_stride = 0;
  std::int64_t q_head_stride = 0;
  const void* k = nullptr;  ///< [num_pages, page_size, dim_qk], of q's type; packed: 656 bytes
  std::int64_t num_pages = 0;
  std::int64_t k_page_stride = 0;
  std::int64_t k_token_stride = 0;
  /// Of lists alone: entry ~s, which is negative, is slot s of a second pool, so many elements behind
  /// k. Others are slots of k.
  std::int64_t second_pool = 0;
  std::int64_t second_slot_stride = 0;
  const float* sinks = nullptr;  ///< [num_heads], or none

  void* o = nullptr;  ///< [q_tokens, num_heads, dim_vo], of q's type
  std::int64_t o_token_stride = 0;
  std::int64_t o_head_stride = 0;
  float* lse = nullptr;  ///< optional, natural log
  std::int64_t lse_token_stride = 0;
  std::int64_t lse_head_stride = 0;

  const attention::LatentWork* work = nullptr;
  const attention::LatentGroup* groups = nullptr;
  const attention::LatentItem* items = nullptr;
  const attention::LatentMerge* merges = nullptr;  ///< [work->num_merges]
  const std::int32_t* kv_indices = nullptr;
  /// By query token, where every token is a request over a list whose length the device finds:
  /// items then have the lengths that were expected. No meetings.
  const std::int32_t* lengths = nullptr;
  std::int32_t* arrivals = nullptr;  ///< [meetings * lanes], zero between launches

  /// Unnormalised outputs and (maximum in base 2, sum) of cut strips; place p of lane l is block
  /// p * lanes + l. The outputs of a meeting lie there as the two kernels' registers hold them; for
  /// the merge they are fp32, or half rows of fp16 (HalfParts).
  float* partial_o = nullptr;        ///< [places * lanes, block_rows, dim_vo]
  float* partial_maximum = nullptr;  ///< [places * lanes, block_rows]
  float* partial_sum = nullptr;

  std::int32_t lanes = 1;  ///< thread blocks of a group: each has its own block of rows
  std::int32_t num_heads = 0;
  std::int32_t block_rows = 0;
  std::int32_t heads_per_block = 0;
  std::int32_t tokens_per_block = 0;
  std::int32_t head_blocks = 0;
  std::int32_t page_size = 0;
  std::int32_t causal = 1;
  std::int32_t dim_qk = kDimQk;  ///< multiples of 8
  std::int32_t dim_vo = kDimVo;

  float scale_log2 = 0;  ///< of a raw product, positive
  float v_scale = 1;
};

/// A row of a part in fp16, half of what is to be written and read: in the first half of its room
/// the numbers, each half row of 256 divided by a power of two that puts its largest below 2^15, so
/// that none is off by more than 2^-12 of that; then the two powers.
struct HalfParts {
  static constexpr int kColumns = kDimVo / 2;    ///< under one factor
  static constexpr int kFactorsAt = kDimVo / 2;  ///< floats from the row's beginning
};

/// Of the merge kernel: most blocks that share a row, and blocks a multiprocessor holds.
inline constexpr int kMergeSlices = 4;
inline constexpr int kMergeBlocksPerSm = 5;

/// Thread blocks of a launch.
struct Grid {
  int blocks = 0;        ///< groups * lanes
  int merge_blocks = 0;  ///< as many as fit: they share what is to merge
};

}  // namespace attune::kernels::mla_decode
