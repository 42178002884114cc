// AttentionSpec: what one group of layers asks of attention. It is known before any batch exists
// (layer attention).
//
// One query head h, one query row i at absolute position p, one key j of its KV head. The logit is
// formed in this order; a step whose option is off is left out:
//
//   1  s = sm_scale * q_scale * k_scale * (q_i . k_j)
//   2  s = cap * tanh(s / cap)              logits_soft_cap = cap > 0     (Gemma 2, arXiv:2408.00118)
//   3  s = s * temperature(p)               xai_temperature_len = len > 0 (Grok):
//                                           1 up to p = len, log2(p) / log2(len) beyond
//   4  s = s - slope_h * |p - j|            alibi                         (arXiv:2108.12409)
//   5  s = score_mod(s, h, p, j)            score_mod: the program's function (arXiv:2412.05496)
//   6  s = -infinity                        where key j is not visible to position p: causal,
//                                           window_left, window_right, attention_chunk, custom_mask,
//                                           block_mask
//
// With m the largest visible logit:
//
//   o_i   = v_scale * sum_j exp(s_ij - m) v_j / (sum_j exp(s_ij - m) + exp(sink_h - m))
//   lse_i = m + ln sum_j exp(s_ij - m)
//
// The term of the sink is there only with `sinks` (gpt-oss). lse is a natural logarithm and leaves
// the sink out. A row that sees no key has o = 0 and lse = -infinity.
//
// dual_chunk: q_i depends on where the key is. A head brings three queries, turned for keys of its
// own chunk of dual_chunk_len positions, of the chunk before it, and of all earlier ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <attune/tensor.hpp>

namespace attune {

/// The mathematics of a layer. `gqa` covers multi-head and multi-query attention.
enum class Variant : std::uint8_t {
  gqa,
  /// Absorbed latent attention (DeepSeek-V2, arXiv:2405.04434): one KV head of width kv_lora_rank +
  /// qk_rope_head_dim; the values are its first kv_lora_rank columns.
  mla,
  sparse_mla,      ///< DeepSeek sparse attention: indexer, top-k, then mla
  dsv4,            ///< DeepSeek-V4: a window and compressed keys (<attune/compressed_call.hpp>)
  minimax_sparse,  ///< block-sparse GQA of MiniMax-M3
  dual_chunk,      ///< Qwen2.5-1M: gqa whose queries differ by the chunk of their keys
  // Linear attention; <attune/linear_state.hpp> has the recurrence of each.
  gdn,         ///< gated delta net
  kda,         ///< Kimi delta attention
  mamba2,      ///< state space duality
  lightning,   ///< one fixed decay a head
  short_conv,  ///< a short causal convolution and no recurrence
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

/// One KV head whose values are the first head_dim_vo columns of its keys (dsv4: all of them).
[[nodiscard]] constexpr bool is_latent(Variant v) {
  return v == Variant::mla || v == Variant::sparse_mla || v == Variant::dsv4;
}

/// Keys and values of their own for each KV head.
[[nodiscard]] constexpr bool has_kv_heads(Variant v) {
  return v == Variant::gqa || v == Variant::dual_chunk || v == Variant::minimax_sparse;
}

/// Softmax over the keys of a page table: what attention::validate_spec and the conformance suite
/// know.
[[nodiscard]] constexpr bool is_dense(Variant v) { return has_kv_heads(v) || is_latent(v); }

/// Queries that a head of dual_chunk brings, side by side: for its own chunk, the chunk before, the
/// earlier ones.
inline constexpr int kDualChunkQueries = 3;

/// Linear variants keep one recurrent state for each request, in place of pages of keys.
[[nodiscard]] constexpr bool is_linear(Variant v) {
  return v == Variant::gdn || v == Variant::kda || v == Variant::mamba2 ||
         v == Variant::lightning || v == Variant::short_conv;
}

/// What selection chooses for: prompts and chunks of them, or one new token a request.
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

/// A plain value: copy it, compare it. Members that a variant does not use keep their defaults.
/// attention::validate_spec (<attune/validate.hpp>) says what is wrong with one.
struct AttentionSpec {
  Variant variant = Variant::gqa;
  AttentionKind kind = AttentionKind::decoder;

  int num_qo_heads = 0;
  int num_kv_heads = 0;  ///< divides num_qo_heads; query head h reads KV head h / gqa_group_size
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  int kv_lora_rank = 0;      ///< mla: head_dim_vo of the absorbed form
  int qk_rope_head_dim = 0;  ///< mla: head_dim_qk - kv_lora_rank

  /// Must be set, and positive: it is never derived from a head dim (1/sqrt(576) is wrong for MLA).
  float sm_scale = 0.0f;
  float logits_soft_cap = 0.0f;  ///< 0 = off
  bool causal = true;            ///< keys j <= p are visible
  /// Tokens. Keys j >= p - window_left are visible, the boundary included: Hugging Face's
  /// sliding_window less 1. -1 = unbounded.
  std::int64_t window_left = -1;
  /// Tokens. Keys j <= p + window_right are visible; -1 = unbounded. For non-causal attention.
  std::int64_t window_right = -1;
  /// Tokens. Llama 4: a query sees the keys of its own chunk of this many positions only; 0 = off.
  std::int64_t attention_chunk = 0;
  bool sinks = false;  ///< the call brings one logit a query head for the denominator (gpt-oss)
  bool alibi = false;  ///< the call brings one slope a query head
  bool relative_bias = false;  ///< a learned bias by distance (T5)
  bool custom_mask = false;    ///< the batch brings packed bits, in place of the causal rule
  bool block_mask = false;     ///< the batch brings a mask by blocks, in place of the causal rule
  bool score_mod = false;      ///< the call brings a function on logits (<attune/flex.hpp>)
  std::int64_t xai_temperature_len = 0;  ///< positions; 0 = off, 1 is refused
  bool kv_scales = false;                ///< the call's k_scale or v_scale may differ from 1
  bool per_head_scales = false;          ///< the call brings a factor for each KV head

  DType q_dtype = DType::bf16;  ///< of q; mla over fp8_e4m3: also that, rounded by the caller
  DType o_dtype = DType::bf16;
  DType kv_dtype = DType::bf16;  ///< of stored keys and values; linear variants: of the state, f32

  std::int64_t dual_chunk_len = 0;  ///< dual_chunk: positions of a chunk
  int compress_ratio = 0;  ///< dsv4: tokens that a compressed key stands for; 0 = the window alone

  // sparse_mla, dsv4, minimax_sparse: what chooses a query's keys (<attune/sparse_call.hpp>).
  int index_num_heads = 0;  ///< minimax_sparse: num_kv_heads, each choosing for its KV head
  int index_head_dim = 0;
  int index_topk = 0;               ///< keys a query attends to at most; minimax_sparse: blocks
  DType index_dtype = DType::bf16;  ///< of stored index keys
  int index_block_size = 0;         ///< minimax_sparse: keys of a block, kept or left out together
  int index_init_blocks = 0;        ///< minimax_sparse: first blocks, always kept
  int index_local_blocks = 0;       ///< minimax_sparse: last blocks, the query's own among them

  // Linear variants (<attune/linear_state.hpp>).
  int linear_num_k_heads = 0;
  int linear_num_v_heads = 0;  ///< a multiple of linear_num_k_heads
  int linear_head_dim_k = 0;   ///< mamba2: d_state
  int linear_head_dim_v = 0;
  int conv_kernel = 0;  ///< taps of the convolution; the state holds conv_kernel - 1 inputs
  int conv_dim = 0;     ///< channels of the convolution: those of q, k and v together

  [[nodiscard]] bool operator==(const AttentionSpec&) const = default;

  [[nodiscard]] constexpr int gqa_group_size() const {
    return num_kv_heads > 0 ? num_qo_heads / num_kv_heads : 0;
  }
  /// Lists of what is kept that a query has.
  [[nodiscard]] constexpr int index_lists() const {
    return variant == Variant::minimax_sparse ? num_kv_heads : 1;
  }
  /// Columns of a head of LayerCall::q.
  [[nodiscard]] constexpr int q_columns() const {
    return head_dim_qk * (variant == Variant::dual_chunk ? kDualChunkQueries : 1);
  }
};

}  // namespace attune
