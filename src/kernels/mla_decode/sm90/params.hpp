// What the Hopper kernels of absorbed latent attention receive (layer kernels): plain structs that
// the backend fills on the host and the kernels read on the device.
//
// Rows of a request are (token, head), in blocks of 64: a block is `tokens_per_block` neighbouring
// tokens of `heads_per_block` neighbouring heads; blocks run heads first.
#pragma once

#include <cstdint>

#include "attention/latent_list.hpp"

namespace attune::kernels::mla_decode::sm90 {

inline constexpr int kRows = 64;  ///< of a block
inline constexpr int kKeys = 64;  ///< of a tile: one page
inline constexpr int kDimQk = 576;
inline constexpr int kDimVo = 512;

/// Strides count elements.
struct Params {
  void* o = nullptr;
  std::int64_t o_token_stride = 0;
  std::int64_t o_head_stride = 0;
  float* lse = nullptr;  ///< optional, natural log
  std::int64_t lse_token_stride = 0;
  std::int64_t lse_head_stride = 0;

  const attention::LatentWork* work = nullptr;
  const std::int32_t* group_begin = nullptr;  ///< [groups + 1] items of a group of thread blocks
  const attention::LatentItem* items = nullptr;
  const attention::LatentMerge* merges = nullptr;  ///< [work->num_merges]
  const std::int32_t* kv_indices = nullptr;

  /// Unnormalised outputs and (maximum in base 2, sum) of cut requests; place p of lane l is block
  /// p * lanes + l of 64 rows.
  float* partial_o = nullptr;        ///< [places * lanes, 64, 512]
  float* partial_maximum = nullptr;  ///< [places * lanes, 64]
  float* partial_sum = nullptr;

  std::int32_t lanes = 1;  ///< thread blocks of a group: each has its own block of rows
  std::int32_t num_heads = 0;
  std::int32_t heads_per_block = 0;
  std::int32_t tokens_per_block = 0;
  std::int32_t head_blocks = 0;
  std::int32_t causal = 1;

  float scale_log2 = 0;  ///< of a raw product, positive
  float v_scale = 1;
};

}  // namespace attune::kernels::mla_decode::sm90
