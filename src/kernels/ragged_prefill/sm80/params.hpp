// What the general CUDA prefill kernel sees.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "attention/mask.hpp"
#include "attention/paged_kv.hpp"
#include "attention/prefill_list.hpp"
#include "base/fast_divisor.hpp"

namespace attune::kernels::ragged_prefill::sm80 {

enum class Element : std::uint8_t { bf16, f16, f32 };

struct Params {
  const void* q = nullptr;  ///< [tokens, num_qo_heads, head_dim_qk], 16-byte aligned rows
  std::int64_t q_token_stride = 0;
  std::int64_t q_head_stride = 0;
  void* o = nullptr;  ///< [tokens, num_qo_heads, head_dim_vo]
  std::int64_t o_token_stride = 0;
  std::int64_t o_head_stride = 0;
  float* lse = nullptr;  ///< [tokens, num_qo_heads] or nullptr
  std::int64_t lse_token_stride = 0;
  std::int64_t lse_head_stride = 0;
  Element q_element = Element::bf16;  ///< that of the keys unless they are fp8
  Element o_element = Element::bf16;

  attention::PagedKv kv;
  const attention::PrefillWork* work = nullptr;
  const attention::PrefillItem* items = nullptr;
  float* partial_o = nullptr;        ///< [places * num_kv_heads, rows, head_dim_vo]
  float2* partial_state = nullptr;   ///< [places * num_kv_heads, rows] (maximum in base 2, sum)
  std::int32_t* arrivals = nullptr;  ///< [places * num_kv_heads], zero between runs
  const attention::TokenRule* rules = nullptr;  ///< [tokens of q], read by shared items

  std::int32_t head_dim_qk = 0;  ///< read by padded kernels only
  std::int32_t head_dim_vo = 0;
  std::int32_t num_kv_heads = 1;
  std::int32_t gqa_group_size = 1;
  base::FastDivisor group;   ///< gqa_group_size
  base::FastDivisor page;    ///< kv.page_size
  attention::MaskRule rule;  ///< not causal where a mask takes over
  const std::uint8_t* custom_mask =
      nullptr;  ///< packed bits; PrefillItem::mask_begin points into it
  std::int64_t xai_temperature_len = 0;

  float scale_log2 = 0.0f;  ///< sm_scale * q_scale * k_scale * log2(e)
  float v_scale = 1.0f;
  const float* k_scale_per_head = nullptr;  ///< [num_kv_heads], on top of scale_log2 (likewise v)
  const float* v_scale_per_head = nullptr;
  float soft_cap_log2 = 0.0f;           ///< cap * log2(e); 0 = off
  const float* sinks = nullptr;         ///< [num_qo_heads]
  const float* alibi_slopes = nullptr;  ///< [num_qo_heads]

  /// Policy::kBlocks: a mask by blocks instead (BlockMaskView). Entries, into which mask_begin points
  /// then; how many heads have their own, 1 or all; bits of blocks neither hidden nor whole.
  const std::int32_t* blocks = nullptr;
  std::int32_t block_heads = 1;
  const std::uint8_t* block_bits = nullptr;
};

}  // namespace attune::kernels::ragged_prefill::sm80
