// What both dense kernels, paged_decode and ragged_prefill, are given (layer kernels).
//
// Key indices count a request's keys from 0 … kv_len-1, wherever its pages begin; the plan has
// already turned masks and positions into them, so that a kernel compares integers only.
#pragma once

#include <cstdint>

#include <attune/score_mod.hpp>
#include <attune/tensor.hpp>

#include "attention/block_table.hpp"
#include "attention/mask.hpp"
#include "attention/paged_kv.hpp"

namespace attune::kernels::dense {

/// Keys a tile: K and V of one tile are packed, multiplied and forgotten together. Tiles start at
/// multiples of this, so a row's sums are formed in the same order whatever its neighbours.
inline constexpr int kKeyTile = 64;

/// A strided [token, head, dim] tensor.
struct Rows {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t token_stride = 0;  ///< in elements
  std::int64_t head_stride = 0;
};

/// Where a thread's own memory is cut, in bytes from its start.
struct ScratchLayout {
  std::int64_t q = 0;         ///< [rows, q_stride] numbers of the multiplying unit
  std::int64_t o = 0;         ///< [rows, o_stride] fp32, unnormalised
  std::int64_t maximum = 0;   ///< [rows] fp32, in log2 units
  std::int64_t sum = 0;       ///< [rows, lanes] fp32
  std::int64_t k = 0;         ///< packed keys, KernelRow::packed_keys of them
  std::int64_t v = 0;         ///< packed values
  std::int64_t widened = 0;   ///< two tiles of fp8 latents as rows of bf16
  std::int64_t q_stride = 0;  ///< elements; head_dim_qk rounded up to whole operands
  std::int64_t o_stride = 0;  ///< elements; head_dim_vo rounded up to whole operands
  std::int64_t bytes = 0;
};

struct Params {
  Rows q;
  Rows o;
  float* lse = nullptr;  ///< optional, natural log
  std::int64_t lse_token_stride = 0;
  std::int64_t lse_head_stride = 0;
  attention::PagedKv kv;
  /// Tokens of the fp8 latent cache (attention/packed_latent.hpp), whose strides count bytes; the
  /// kernel is that of bf16 keys.
  bool packed_latents = false;

  /// A row's bits must not depend on how many rows meet the keys together.
  bool rows_alike = false;

  int head_dim_qk = 0;
  int head_dim_vo = 0;
  int gqa_group_size = 1;

  float logit_scale = 1.0f;  ///< sm_scale * q_scale * k_scale
  float v_scale = 1.0f;
  const float* k_scale_per_head = nullptr;  ///< [num_kv_heads], on top of logit_scale
  const float* v_scale_per_head = nullptr;  ///< [num_kv_heads], on top of v_scale
  float logits_soft_cap = 0.0f;             ///< 0 = off
  const float* sinks = nullptr;             ///< [num_qo_heads]
  const float* alibi_slopes = nullptr;      ///< [num_qo_heads]

  // The plan's, by query token of the batch.
  const attention::KeyRange* visible = nullptr;  ///< key indices
  const std::int64_t* key_position = nullptr;    ///< the key index a query itself would have
  const float* temperature = nullptr;            ///< factor on capped logits; nullptr = 1

  const std::uint8_t* custom_mask = nullptr;
  const std::int64_t* custom_mask_indptr = nullptr;  ///< [batch], bytes
  attention::BlockTable block_mask{};                ///< of ragged_prefill alone
  const ScoreMod* score_mod = nullptr;
  const std::int64_t* first_position = nullptr;  ///< [batch], of key index 0; with score_mod

  float* partial_o = nullptr;    ///< [partial rows, head_dim_vo], normalised
  float* partial_lse = nullptr;  ///< [partial rows], natural log
  ScratchLayout scratch;
};

/// One piece of work: some query rows against a range of keys. Row r is token
/// first_token + r / num_heads, head first_head + r % num_heads. paged_decode takes one token and
/// all heads of several KV heads, ragged_prefill any tokens and heads of one.
struct Item {
  std::int64_t request = 0;
  std::int64_t first_token = 0;  ///< of the batch
  std::int64_t num_tokens = 0;
  std::int64_t request_token = 0;  ///< first_token counted within the request (masks)
  int kv_head = 0;
  int num_kv_heads = 1;
  int first_head = 0;
  int num_heads = 0;
  std::int64_t kv_begin = 0;  ///< key indices
  std::int64_t kv_end = 0;
  attention::KeyRange shared{};     ///< key indices that every row sees
  std::int64_t kv_len = 0;          ///< of the request (masks)
  std::int64_t partial_row = -1;    ///< first row of partial_o; -1 = write the final o and lse
  std::int64_t partial_stride = 0;  ///< rows of partial_o from a token to the next
};

using Kernel = void (*)(const Params&, const Item&, void* scratch);

}  // namespace attune::kernels::dense
