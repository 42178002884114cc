// What the CUDA decode kernels see (docs/architecture.md, "What a line of kernel code may touch").
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "attention/paged_kv.hpp"
#include "attention/work_list.hpp"
#include "base/fast_divisor.hpp"

namespace attune::kernels::paged_decode::sm80 {

using base::FastDivisor;

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
  FastDivisor page;  ///< kv.page_size
  /// Of a kernel over lists: each KV head of a row of q has pages of its own in kv.indices, from
  /// (row * num_kv_heads + head) * list_entries on, in the place of a request's, and so many keys in
  /// them, which may be fewer than its chunks were cut for.
  const std::int32_t* lengths = nullptr;  ///< [tokens, num_kv_heads]
  std::int32_t list_entries = 0;

  // The plan, in the workspace.
  const attention::DecodeWork* work = nullptr;
  const attention::DecodeChunk* chunks = nullptr;
  /// The kernels before this one in the stream have written none of chunks, work and page ids: they
  /// are read while those run.
  bool listed_before = false;
  float* partial_o = nullptr;  ///< [places * units, heads_per_cta, rows, head_dim_vo]
  float2* partial_state =
      nullptr;  ///< [places * units, heads_per_cta, rows] (maximum in base 2, sum)
  std::int32_t* arrivals = nullptr;  ///< [places * units], zero between runs
  /// Of a cooperative launch: where parts of an even list are handed over, [items, outputs of a
  /// block / 4], every word ptx::kNoMail between runs; nullptr: through the places above.
  float4* mail_o = nullptr;
  float2* mail_state = nullptr;
  std::int32_t* claims =
      nullptr;  ///< items taken beyond the first two of each CTA; zero between runs

  std::int32_t head_dim_qk = 0;  ///< read by padded kernels only
  std::int32_t head_dim_vo = 0;
  std::int32_t num_kv_heads = 1;
  std::int32_t gqa_group_size = 1;
  FastDivisor row_blocks;          ///< parts a GQA group is cut into, of kRows query heads each
  FastDivisor rows;                ///< of a part: min(kRows, gqa_group_size)
  std::int32_t heads_per_cta = 1;  ///< power of two; warps share them round robin
  FastDivisor units;               ///< num_kv_heads * row_blocks / heads_per_cta

  float scale_log2 = 0.0f;  ///< sm_scale * q_scale * k_scale * log2(e)
  float v_scale = 1.0f;
  const float* k_scale_per_head = nullptr;  ///< [num_kv_heads], on top of scale_log2 (likewise v)
  const float* v_scale_per_head = nullptr;
  float soft_cap_log2 = 0.0f;           ///< cap * log2(e); 0 = off
  const float* sinks = nullptr;         ///< [num_qo_heads]
  const float* alibi_slopes = nullptr;  ///< [num_qo_heads]
};

}  // namespace attune::kernels::paged_decode::sm80
