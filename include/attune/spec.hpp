// AttentionSpec: what one group of layers asks of attention. Known before any batch exists (layer
// attention).
//
// The logit of query i (absolute position p) and key j of one head, in this order:
//   s = sm_scale * q_scale * k_scale * (q_i . k_j)
//   s = cap * tanh(s / cap)                      if logits_soft_cap > 0     (Gemma 2,
//   arXiv:2408.00118) s = s * temperature(p)                       if xai_temperature_len > 0 (log2
//   p / log2 len beyond len; Grok) s = s - slope_h * |p - j|                    if alibi
//   (arXiv:2108.12409) s = -inf                                     where attention/mask.hpp says
//   "not visible"
// o_i = v_scale * sum_j exp(s_ij - m) v_j / (sum_j exp(s_ij - m) + exp(sink_h - m)), the sink only
// if `sinks`. lse_i = m + ln sum_j exp(s_ij - m): natural, without the sink. No visible key: o = 0,
// lse = -inf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <attune/tensor.hpp>

namespace attune {

/// The mathematics of a layer. `gqa` covers multi-head and multi-query attention.
enum class Variant : std::uint8_t {
  gqa,
  mla,  ///< absorbed latent attention: one KV head of kv_lora_rank + qk_rope_head_dim, V a slice of
        ///< K
  sparse_mla,      ///< DeepSeek sparse attention: indexer, top-k, then mla
  dsv4,            ///< DeepSeek-V4 compressed attention
  minimax_sparse,  ///< block-sparse GQA of MiniMax-M3
  dual_chunk,      ///< Qwen2.5-1M
  gdn,
  kda,
  mamba2,
  lightning,
  short_conv,
};

[[nodiscard]] constexpr std::string_view name(Variant v) {
  switch (v) {
    case Variant::gqa: return "gqa";
    case Variant::mla: return "mla";
    case Variant::sparse_mla: return "sparse_mla";
    case Variant::dsv4: return "dsv4";
    case Variant::minimax_sparse: return "minimax_sparse";
    case Variant::dual_chunk: return "dual_chunk";
    case Variant::gdn: return "gdn";
    case Variant::kda: return "kda";
    case Variant::mamba2: return "mamba2";
    case Variant::lightning: return "lightning";
    case Variant::short_conv: return "short_conv";
  }
  return "?";
}

/// One KV head of latents, of which values are the first kv_lora_rank columns.
[[nodiscard]] constexpr bool is_latent(Variant v) {
  return v == Variant::mla || v == Variant::sparse_mla;
}

/// Linear variants keep a recurrent state a request instead of pages.
[[nodiscard]] constexpr bool is_linear(Variant v) {
  return v == Variant::gdn || v == Variant::kda || v == Variant::mamba2 ||
         v == Variant::lightning || v == Variant::short_conv;
}

enum class Phase : std::uint8_t { prefill, decode };

[[nodiscard]] constexpr std::string_view name(Phase p) {
  return p == Phase::prefill ? "prefill" : "decode";
}

/// Whose keys a query sees.
enum class AttentionKind : std::uint8_t {
  decoder,       ///< causal self attention over the cache
  encoder_only,  ///< bidirectional self attention, ragged, no cache
  cross,         ///< keys of an encoder, no causal rule
};

struct AttentionSpec {
  Variant variant = Variant::gqa;
  AttentionKind kind = AttentionKind::decoder;

  int num_qo_heads = 0;
  int num_kv_heads = 0;  ///< divides num_qo_heads; query head h reads KV head h / gqa_group_size
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  int kv_lora_rank = 0;      ///< mla: head_dim_vo of the absorbed form
  int qk_rope_head_dim = 0;  ///< mla: head_dim_qk - kv_lora_rank

  float sm_scale = 0.0f;         ///< must be positive; never guessed (1/sqrt(576) is wrong for MLA)
  float logits_soft_cap = 0.0f;  ///< 0 = off
  bool causal = true;
  std::int64_t window_left =
      -1;  ///< keys j >= p - window_left are visible; -1 = all. Hugging Face's sliding_window - 1
  std::int64_t window_right =
      -1;  ///< keys j <= p + window_right are visible; -1 = all (non-causal only)
  std::int64_t attention_chunk =
      0;  ///< Llama-4: keys of the query's own chunk of this many positions only; 0 = off
  bool sinks = false;  ///< one logit per query head in the denominator (gpt-oss)
  bool alibi = false;
  bool relative_bias = false;            ///< a learned bias by distance (T5)
  bool custom_mask = false;              ///< the batch brings packed bits
  std::int64_t xai_temperature_len = 0;  ///< 0 = off
  bool kv_scales = false;                ///< k_scale / v_scale differ from 1
  bool per_head_scales = false;          ///< … and differ by KV head

  DType q_dtype = DType::bf16;  ///< of q, and of o unless o_dtype says otherwise
  DType o_dtype = DType::bf16;
  DType kv_dtype = DType::bf16;

  // sparse_mla: what chooses a query's keys (sparse_call.hpp).
  int index_num_heads = 0;
  int index_head_dim = 0;
  int index_topk = 0;               ///< keys a query attends to at most
  DType index_dtype = DType::bf16;  ///< of stored index keys

  // Linear variants (section g to k of the algorithm notes): key heads, value heads and the state's
  // dims.
  int linear_num_k_heads = 0;
  int linear_num_v_heads = 0;
  int linear_head_dim_k = 0;  ///< mamba2: d_state
  int linear_head_dim_v = 0;
  int conv_kernel = 0;  ///< K; the state holds K - 1 inputs
  int conv_dim = 0;     ///< channels of the convolution

  [[nodiscard]] bool operator==(const AttentionSpec&) const = default;

  [[nodiscard]] constexpr int gqa_group_size() const {
    return num_kv_heads > 0 ? num_qo_heads / num_kv_heads : 0;
  }
};

}  // namespace attune
