// What makes a spec or a call valid; batches are checked in validate_batch.cpp.
#include <attune/validate.hpp>

#include <cmath>
#include <initializer_list>
#include <string_view>

#include "attention/plain_causal.hpp"
#include "attention/validate_compressed.hpp"
#include "attention/validate_sparse.hpp"
#include "base/join.hpp"
#include "tensor/shape_match.hpp"

namespace attune::attention {
namespace {

using base::join;

bool is_float(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; }

bool is_kv_dtype(DType t) {
  return is_float(t) || t == DType::fp8_e4m3 || t == DType::fp8_e5m2 || t == DType::i8;
}

bool holds_latents(KvLayout layout) {
  return layout == KvLayout::mla_latent || layout == KvLayout::mla_latent_fp8;
}

Status check_scale(std::string_view what, float scale) {
  if (std::isfinite(scale) && scale > 0.0f) return {};
  return invalid_argument(join(what, " must be positive and finite, have ", scale));
}

Status check_asked(std::string_view what, bool asked, bool given) {
  if (asked == given) return {};
  if (given)
    return invalid_argument(join("the call brings ", what, ", but the spec does not ask for it"));
  return invalid_argument(join("the spec asks for ", what, ", but the call brings none"));
}

Status check_scales(const LayerCall& call, const AttentionSpec& spec) {
  if (!std::isfinite(call.q_scale))
    return invalid_argument(join("q_scale must be finite, have ", call.q_scale));
  if (Status s = check_scale("k_scale", call.k_scale); !s.ok()) return s;
  if (Status s = check_scale("v_scale", call.v_scale); !s.ok()) return s;
  if (is_latent(spec.variant) && call.k_scale != call.v_scale)
    return invalid_argument(join("latent values are a slice of the keys: v_scale ", call.v_scale,
                                 " must equal k_scale ", call.k_scale));
  if (!spec.kv_scales && (call.k_scale != 1.0f || call.v_scale != 1.0f))
    return invalid_argument(join("k_scale ", call.k_scale, " and v_scale ", call.v_scale,
                                 " need kv_scales in the spec"));
  if (Status s =
          check_asked("k_scale_per_head", spec.per_head_scales, call.k_scale_per_head != nullptr);
      !s.ok())
    return s;
  return check_asked("v_scale_per_head", spec.per_head_scales, call.v_scale_per_head != nullptr);
}

/// Pages of a cache tensor of `head_dim`-wide rows, checked against the layout.
Result<std::int64_t> match_cache(std::string_view what, const TensorView& view,
                                 const AttentionSpec& spec, int head_dim, std::int32_t page_size,
                                 KvLayout layout, bool written) {
  const auto check = [&](std::initializer_list<std::int64_t> shape, DType dtype) {
    return tensor::match(view, {.name = what, .dtype = dtype, .shape = shape, .written = written});
  };
  using tensor::kAnySize;
  Status s;
  switch (layout) {
    case KvLayout::nhd:
      s = check({kAnySize, page_size, spec.num_kv_heads, head_dim}, spec.kv_dtype);
      break;
    case KvLayout::hnd:
      s = check({kAnySize, spec.num_kv_heads, page_size, head_dim}, spec.kv_dtype);
      break;
    case KvLayout::mla_latent: s = check({kAnySize, page_size, head_dim}, spec.kv_dtype); break;
    case KvLayout::mla_latent_fp8: s = check({kAnySize, page_size, 656}, DType::u8); break;
  }
  if (!s.ok()) return s;
  return view.shape[0];
}

/// The number of pages both caches have.
Result<std::int64_t> match_caches(const LayerCall& call, const AttentionSpec& spec,
                                  std::int32_t page_size, KvLayout layout, bool written) {
  auto k = match_cache("k_cache", call.k_cache, spec, spec.head_dim_qk, page_size, layout, written);
  if (!k.ok()) return k;
  if (holds_latents(layout)) {
    if (!call.v_cache.defined() || call.v_cache.data == call.k_cache.data) return k;
    return invalid_argument(
        "v_cache of a latent layout is a slice of k_cache: leave it empty, or "
        "give the same memory");
  }
  auto v = match_cache("v_cache", call.v_cache, spec, spec.head_dim_vo, page_size, layout, written);
  if (!v.ok()) return v;
  if (*k != *v) return invalid_argument(join("k_cache has ", *k, " pages, v_cache has ", *v));
  return k;
}

Status check_chunks(const AttentionSpec& spec) {
  const bool asked = spec.variant == Variant::dual_chunk;
  if (!asked && spec.dual_chunk_len == 0) return {};
  if (!asked)
    return invalid_argument(join("dual_chunk_len = ", spec.dual_chunk_len,
                                 " belongs to dual_chunk, not to ", name(spec.variant)));
  if (spec.dual_chunk_len < 1)
    return invalid_argument(
        join("dual_chunk wants chunks of one position at least, have ", spec.dual_chunk_len));
  if (spec.kind != AttentionKind::decoder)
    return invalid_argument("dual_chunk is decoder attention: its chunks are of one sequence");
  return check_plain_causal(spec);
}

Status check_flex(const AttentionSpec& spec) {
  if (!spec.block_mask && !spec.score_mod) return {};
  if (spec.variant != Variant::gqa)
    return invalid_argument(
        join("block_mask and score_mod belong to gqa, not to ", name(spec.variant)));
  if (spec.block_mask && spec.custom_mask)
    return invalid_argument(
        "custom_mask and block_mask both stand in place of the causal rule: ask for one");
  return {};
}

Status match_tokens(std::string_view what, const TensorView& view, std::int64_t tokens, int heads,
                    int head_dim, DType dtype, bool written = false) {
  const std::int64_t shape[] = {tokens, heads, head_dim};
  return tensor::match(view, {.name = what, .dtype = dtype, .shape = shape, .written = written});
}

}  // namespace

Status validate_spec(const AttentionSpec& spec) {
  if (!is_dense(spec.variant))
    return invalid_argument(join("variant ", name(spec.variant), " is not dense attention"));
  if (spec.num_qo_heads < 1 || spec.num_kv_heads < 1 || spec.num_qo_heads % spec.num_kv_heads != 0)
    return invalid_argument(join("num_kv_heads must divide num_qo_heads, have ", spec.num_kv_heads,
                                 " and ", spec.num_qo_heads));
  if (spec.head_dim_qk < 1 || spec.head_dim_vo < 1)
    return invalid_argument(
        join("head dims must be positive, have ", spec.head_dim_qk, " and ", spec.head_dim_vo));
  const bool absorbed = is_latent(spec.variant) && spec.variant != Variant::dsv4;
  if (absorbed &&
      (spec.num_kv_heads != 1 || spec.kv_lora_rank != spec.head_dim_vo ||
       spec.kv_lora_rank + spec.qk_rope_head_dim != spec.head_dim_qk || spec.qk_rope_head_dim < 0))
    return invalid_argument(join(
        "absorbed mla has one KV head, head_dim_vo = kv_lora_rank and head_dim_qk = kv_lora_rank + "
        "qk_rope_head_dim; have ",
        spec.num_kv_heads, " heads, dims ", spec.head_dim_qk, " and ", spec.head_dim_vo, ", rank ",
        spec.kv_lora_rank, ", rope ", spec.qk_rope_head_dim));
  if (Status s = check_scale("sm_scale", spec.sm_scale); !s.ok()) return s;
  if (!std::isfinite(spec.logits_soft_cap) || spec.logits_soft_cap < 0.0f)
    return invalid_argument(
        join("logits_soft_cap must be 0 or positive, have ", spec.logits_soft_cap));
  if (spec.window_left < -1 || spec.window_right < -1)
    return invalid_argument(join("windows are -1 or counts of tokens, have left ", spec.window_left,
                                 ", right ", spec.window_right));
  if (spec.causal && spec.window_right > 0)
    return invalid_argument(
        join("causal attention sees nothing to the right, have window_right ", spec.window_right));
  if (spec.attention_chunk < 0 || spec.xai_temperature_len < 0)
    return invalid_argument(join("lengths must not be negative, have attention_chunk ",
                                 spec.attention_chunk, ", xai_temperature_len ",
                                 spec.xai_temperature_len));
  if (spec.xai_temperature_len == 1)
    return invalid_argument("xai_temperature_len = 1 divides by log2(1) = 0");
  if (spec.kind != AttentionKind::decoder && spec.causal)
    return invalid_argument("cross and encoder-only attention are not causal: set causal = false");
  if (is_latent(spec.variant) && spec.kind != AttentionKind::decoder)
    return invalid_argument(
        "mla is decoder attention: cross and encoder attention have no latents");
  if (is_latent(spec.variant) && spec.per_head_scales)
    return invalid_argument("mla has one KV head: use k_scale instead of per_head_scales");
  const bool e4m3_queries = spec.q_dtype == DType::fp8_e4m3 && spec.variant == Variant::mla &&
                            spec.kv_dtype == DType::fp8_e4m3;
  if ((!is_float(spec.q_dtype) && !e4m3_queries) || !is_float(spec.o_dtype))
    return invalid_argument(
        join("q and o must be fp32, bf16 or fp16, or q of mla fp8_e4m3 over latents in fp8_e4m3, "
             "have ",
             name(spec.q_dtype), " and ", name(spec.o_dtype)));
  if (!is_kv_dtype(spec.kv_dtype))
    return invalid_argument(join("keys and values cannot be stored as ", name(spec.kv_dtype)));
  if (spec.variant == Variant::sparse_mla)
    if (Status s = validate_indexer(spec); !s.ok()) return s;
  if (Status s = validate_blocks(spec); !s.ok()) return s;
  if (Status s = validate_compressed_spec(spec); !s.ok()) return s;
  if (Status s = check_flex(spec); !s.ok()) return s;
  return check_chunks(spec);
}

Status validate_run(const LayerCall& call, const BatchFacts& facts, const AttentionSpec& spec,
                    std::int32_t page_size, KvLayout layout) {
  if (Status s = match_tokens("q", call.q, facts.num_qo_tokens, spec.num_qo_heads, spec.q_columns(),
                              spec.q_dtype);
      !s.ok())
    return s;
  if (Status s = match_tokens("o", call.o, facts.num_qo_tokens, spec.num_qo_heads, spec.head_dim_vo,
                              spec.o_dtype, true);
      !s.ok())
    return s;
  if (call.lse.defined()) {
    const std::int64_t shape[] = {facts.num_qo_tokens, spec.num_qo_heads};
    if (Status s = tensor::match(
            call.lse, {.name = "lse", .dtype = DType::f32, .shape = shape, .written = true});
        !s.ok())
      return s;
  }
  if (facts.source == KvSource::ragged) {
    if (Status s = match_tokens("k", call.k, facts.num_kv_tokens, spec.num_kv_heads,
                                spec.head_dim_qk, spec.kv_dtype);
        !s.ok())
      return s;
    if (!is_latent(spec.variant)) {
      if (Status s = match_tokens("v", call.v, facts.num_kv_tokens, spec.num_kv_heads,
                                  spec.head_dim_vo, spec.kv_dtype);
          !s.ok())
        return s;
    }
  } else if (facts.max_page_id >= 0) {
    const auto pages = match_caches(call, spec, page_size, layout, false);
    if (!pages.ok()) return pages.status();
    if (facts.max_page_id >= *pages)
      return invalid_argument(
          join("page id ", facts.max_page_id, " is beyond the cache of ", *pages, " pages"));
  }
  if (spec.variant == Variant::dsv4) {
    if (Status s = validate_compressed_run(call, facts, spec, page_size); !s.ok()) return s;
  } else if (Status s =
                 validate_sparse_run(call, facts.num_qo_tokens, spec,
                                     {.source = facts.source,
                                      .num_ragged = facts.num_kv_tokens,
                                      .pages = facts.max_page_id < 0 ? -1 : call.k_cache.shape[0],
                                      .page_size = page_size});
             !s.ok()) {
    return s;
  }
  if (Status s = check_scales(call, spec); !s.ok()) return s;
  if (Status s = check_asked("sinks", spec.sinks, call.sinks != nullptr); !s.ok()) return s;
  if (Status s = check_asked("score_mod", spec.score_mod, call.score_mod.given()); !s.ok())
    return s;
  return check_asked("alibi_slopes", spec.alibi, call.alibi_slopes != nullptr);
}

Status validate_append(const LayerCall& call, const AttentionSpec& spec, std::int32_t page_size,
                       KvLayout layout) {
  const auto tokens = static_cast<std::int64_t>(call.slot_mapping.size());
  if (tokens == 0) return {};
  if (!is_float(call.k.dtype))
    return invalid_argument(
        join("k: new keys must be fp32, bf16 or fp16, have ", name(call.k.dtype)));
  if (Status s =
          match_tokens("k", call.k, tokens, spec.num_kv_heads, spec.head_dim_qk, call.k.dtype);
      !s.ok())
    return s;
  if (!holds_latents(layout)) {
    if (Status s =
            match_tokens("v", call.v, tokens, spec.num_kv_heads, spec.head_dim_vo, call.k.dtype);
        !s.ok())
      return s;
  }
  const auto pages = match_caches(call, spec, page_size, layout, true);
  if (!pages.ok()) return pages.status();
  if (Status s =
          spec.variant == Variant::dsv4
              ? validate_compressed_append(call, spec, page_size)
              : validate_sparse_append(call, spec, {.pages = *pages, .page_size = page_size});
      !s.ok())
    return s;
  return check_scales(call, spec);
}

Status validate_slots(std::span<const std::int64_t> slot_mapping, std::int64_t num_slots) {
  for (std::size_t i = 0; i < slot_mapping.size(); ++i)
    if (slot_mapping[i] >= num_slots)
      return invalid_argument(join("slot_mapping[", i, "] = ", slot_mapping[i],
                                   " is beyond the cache of ", num_slots, " slots"));
  return {};
}

}  // namespace attune::attention
