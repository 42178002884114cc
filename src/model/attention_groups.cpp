#include "model/attention_groups.hpp"

namespace attune::model {
namespace {

Variant variant_of(AttentionLayerKind kind) {
  switch (kind) {
    case AttentionLayerKind::mla: return Variant::mla;
    case AttentionLayerKind::sparse_mla: return Variant::sparse_mla;
    case AttentionLayerKind::dsv4: return Variant::dsv4;
    case AttentionLayerKind::minimax_sparse: return Variant::minimax_sparse;
    case AttentionLayerKind::dual_chunk: return Variant::dual_chunk;
    default: return Variant::gqa;
  }
}

/// Index keys are kept in the latents' type, or in 16 bits beside narrower ones.
DType index_dtype(const GroupDTypes& dtypes) {
  if (size_of(dtypes.kv) > 1) return dtypes.kv;
  return dtypes.compute == DType::f16 ? DType::f16 : DType::bf16;
}

AttentionSpec spec_of(const AttentionConfig& a, const GroupDTypes& dtypes) {
  AttentionSpec s;
  s.variant = variant_of(a.kind);
  if (a.kind == AttentionLayerKind::cross) s.kind = AttentionKind::cross;
  if (a.kind == AttentionLayerKind::encoder) s.kind = AttentionKind::encoder_only;
  s.num_qo_heads = a.num_qo_heads;
  s.num_kv_heads = a.num_kv_heads;
  s.head_dim_qk = a.head_dim_qk;
  s.head_dim_vo = a.head_dim_vo;
  if (is_latent(s.variant) && s.variant != Variant::dsv4) {
    s.num_kv_heads = 1;
    s.kv_lora_rank = a.kv_lora_rank;
    s.qk_rope_head_dim = a.qk_rope_head_dim;
    s.head_dim_qk = a.kv_lora_rank + a.qk_rope_head_dim;
    s.head_dim_vo = a.kv_lora_rank;
  }
  s.compress_ratio = a.compress_ratio;
  const bool blocks = s.variant == Variant::minimax_sparse;
  const bool indexes = s.variant == Variant::sparse_mla || blocks ||
                       (s.variant == Variant::dsv4 && a.indexer.num_heads > 0);
  if (indexes) {
    s.index_num_heads = a.indexer.num_heads;
    s.index_head_dim = a.indexer.head_dim;
    s.index_topk = a.indexer.topk;
    s.index_dtype = index_dtype(dtypes);
  }
  if (blocks) {
    s.index_block_size = a.indexer.block_size;
    s.index_init_blocks = a.indexer.init_blocks;
    s.index_local_blocks = a.indexer.local_blocks;
  }
  s.sm_scale = static_cast<float>(a.sm_scale);
  s.logits_soft_cap = static_cast<float>(a.logits_soft_cap);
  s.causal = a.causal;
  if (a.sliding_window > 0) s.window_left = a.sliding_window - 1;
  if (a.kind == AttentionLayerKind::chunked) s.attention_chunk = a.attention_chunk;
  if (s.variant == Variant::dual_chunk) s.dual_chunk_len = a.dual_chunk.period();
  s.sinks = a.sinks;
  s.alibi = a.alibi;
  s.relative_bias = a.relative_bias;
  s.xai_temperature_len = a.xai_temperature_len;
  s.q_dtype = s.o_dtype = dtypes.compute;
  s.kv_dtype = dtypes.kv;
  return s;
}

AttentionSpec spec_of(const LinearConfig& l, const GroupDTypes& dtypes) {
  AttentionSpec s;
  s.variant = l.variant;
  s.num_qo_heads = l.num_v_heads;
  s.num_kv_heads = l.num_k_heads;
  s.linear_num_k_heads = l.num_k_heads;
  s.linear_num_v_heads = l.num_v_heads;
  s.linear_head_dim_k = l.head_dim_k;
  s.linear_head_dim_v = l.head_dim_v;
  s.conv_kernel = l.conv_kernel;
  s.conv_dim = l.conv_dim;
  s.sm_scale = 1.0f;
  s.q_dtype = s.o_dtype = dtypes.linear.value_or(dtypes.compute);
  s.kv_dtype = DType::f32;  // the recurrent state
  return s;
}

/// DeepSeek-V4's layers differ by what they compress.
std::string kind_of(const AttentionConfig& a) {
  std::string kind(name(a.kind));
  if (a.kind != AttentionLayerKind::dsv4) return kind;
  return kind + (a.compress_ratio == 0 ? " window" : " ratio " + std::to_string(a.compress_ratio));
}

/// The group of `kind` and `spec`, new if there is none yet: layers that differ in things attention
/// does not see (RoPE, norms) stay together.
AttentionGroup& group_of(std::vector<AttentionGroup>& groups, const std::string& kind,
                         const AttentionSpec& spec) {
  for (AttentionGroup& group : groups)
    if (group.kind == kind && group.spec == spec) return group;
  groups.push_back({.kind = kind, .spec = spec});
  return groups.back();
}

}  // namespace

std::vector<AttentionGroup> attention_groups(const ModelConfig& config, const GroupDTypes& dtypes) {
  std::vector<AttentionGroup> groups;
  const auto take = [&](const AttentionConfig& a, int layer) {
    group_of(groups, kind_of(a), spec_of(a, dtypes)).layers.push_back(layer);
  };
  for (int i = 0; i < config.num_layers(); ++i) {
    const LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
    if (layer.attention >= 0) take(*config.attention_of(i), i);
    if (layer.cross_attention >= 0)
      take(config.attention[static_cast<std::size_t>(layer.cross_attention)], i);
    if (layer.linear >= 0) {
      const LinearConfig& linear = *config.linear_of(i);
      const std::string kind =
          linear.family.empty() ? std::string(name(linear.variant)) : linear.family;
      group_of(groups, kind, spec_of(linear, dtypes)).layers.push_back(i);
    }
  }
  if (config.encoder.num_layers > 0) {
    const AttentionConfig& a = config.attention[static_cast<std::size_t>(config.encoder.attention)];
    AttentionGroup group{.kind = kind_of(a), .spec = spec_of(a, dtypes), .encoder = true};
    for (int i = 0; i < config.encoder.num_layers; ++i) group.layers.push_back(i);
    groups.push_back(std::move(group));
  }
  return groups;
}

AttentionSpec expanded_spec(const AttentionSpec& latent, const AttentionConfig& config,
                            bool causal) {
  AttentionSpec s = latent;
  s.variant = Variant::gqa;
  s.num_kv_heads = config.num_qo_heads;
  s.head_dim_qk = config.head_dim_qk;
  s.head_dim_vo = config.head_dim_vo;
  s.kv_lora_rank = 0;
  s.qk_rope_head_dim = 0;
  s.kv_dtype = latent.q_dtype;
  s.causal = causal;
  return s;
}

GroupDTypes auto_dtypes(const ModelConfig& config, const DeviceInfo& device) {
  const DType half = config.dtype == DType::f16 ? DType::f16 : DType::bf16;
  const bool computes_in_half = device.kind != DeviceKind::cpu || device.isa == CpuIsa::amx;
  GroupDTypes dtypes{.compute = computes_in_half ? half : DType::f32, .kv = half};
  if (config.checkpoint_kv_dtype) dtypes.kv = *config.checkpoint_kv_dtype;
  return dtypes;
}

}  // namespace attune::model
