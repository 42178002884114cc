// Families that mix windowed or chunked layers with full ones, each kind with numbers of its own.
#include <algorithm>
#include <cmath>

#include "model/config_draft.hpp"
#include "model/config_rope.hpp"

namespace attune::model {
namespace {

void read_gemma(ConfigDraft& d) {
  ModelConfig& c = d.config;
  c.activation = Activation::gelu_tanh;
  c.norm = NormKind::rms_plus_one;
  c.norm_placement = NormPlacement::sandwich;
  c.embedding_multiplier = std::sqrt(static_cast<double>(c.hidden_size));
  c.final_logits_soft_cap = d.text.number("final_logit_softcapping", 0.0);
  d.attention.logits_soft_cap = d.text.number("attn_logit_softcapping", 0.0);
}

}  // namespace

void build_gemma2(ConfigDraft& d) {
  d.config.tie_embeddings = true;
  d.config.norm_eps = 1e-6;
  d.read_common();
  read_gemma(d);
  d.attention.sm_scale = 1.0 / std::sqrt(d.text.number("query_pre_attn_scalar", 256.0));
  d.fill(d.layer_words([](int i) { return i % 2 == 0 ? LayerWord::sliding : LayerWord::full; }),
         [&](int, LayerWord word) {
           return word == LayerWord::sliding ? d.windowed(d.attention) : d.attention;
         });
}

void build_gemma3(ConfigDraft& d) {
  d.config.tie_embeddings = true;
  d.config.norm_eps = 1e-6;
  d.config.vocab_size = 262208;
  d.config.context_length = 131072;
  d.read_common(1000000.0);
  if (!d.text.has("head_dim")) {
    d.attention.head_dim_qk = d.attention.head_dim_vo = 256;
    d.attention.rope = parse_rope(d.text, 256, 1000000.0);
  }
  read_gemma(d);
  d.attention.qk_norm = QkNorm::per_head;
  d.attention.sm_scale = 1.0 / std::sqrt(d.text.number("query_pre_attn_scalar", 256.0));
  AttentionConfig full = d.attention;
  full.rope = parse_rope_of(d, "full_attention", 1000000.0);
  const int every = std::max(
      1, d.text.size(d.text.first_of({"sliding_window_pattern", "_sliding_window_pattern"}), 6));
  d.fill(d.layer_words(
             [&](int i) { return (i + 1) % every == 0 ? LayerWord::full : LayerWord::sliding; }),
         [&](int, LayerWord word) {
           if (word != LayerWord::sliding) return full;
           AttentionConfig sliding = d.windowed(d.attention);
           if (d.text.has("rope_parameters")) {
             sliding.rope = parse_rope_of(d, "sliding_attention", 10000.0);
           } else {  // older files scale the full layers only
             sliding.rope = unscaled(sliding.rope);
             sliding.rope.theta = d.text.number("rope_local_base_freq", 10000.0);
           }
           return sliding;
         });
}

void build_gemma4(ConfigDraft& d) {
  d.config.tie_embeddings = true;
  d.config.norm_eps = 1e-6;
  d.read_common();
  read_gemma(d);
  ModelConfig& c = d.config;
  c.norm = NormKind::rms;
  c.per_layer_input_size = d.text.size("hidden_size_per_layer_input", 256);
  c.per_layer_vocab_size = d.text.integer("vocab_size_per_layer_input", c.vocab_size);
  d.attention.qk_norm = QkNorm::per_head;
  d.attention.v_norm = true;
  d.attention.sm_scale = 1.0;
  const bool k_is_v = d.text.flag("attention_k_eq_v", false);
  const auto per_layer = d.text.section("per_layer_config");
  const int global_dim = d.text.size("global_head_dim", per_layer ? d.attention.head_dim_qk : 512);
  const int global_kv_heads =
      k_is_v ? d.text.size("num_global_key_value_heads", d.attention.num_kv_heads)
             : d.attention.num_kv_heads;
  const std::vector<LayerWord> words =
      d.layer_words([](int i) { return (i + 1) % 6 == 0 ? LayerWord::full : LayerWord::sliding; });
  d.fill(words, [&](int i, LayerWord word) {
    AttentionConfig a = word == LayerWord::sliding ? d.windowed(d.attention) : d.attention;
    int dim = word == LayerWord::sliding ? a.head_dim_qk : global_dim;
    if (word != LayerWord::sliding) {
      a.k_is_v = k_is_v;
      a.num_kv_heads = global_kv_heads;
    }
    if (per_layer) {
      if (const auto own = per_layer->section(std::to_string(i))) {
        dim = own->size("head_dim", dim);
        a.num_kv_heads = own->size("num_key_value_heads", a.num_kv_heads);
      }
    }
    a.head_dim_qk = a.head_dim_vo = dim;
    const bool local = word == LayerWord::sliding;
    a.rope = parse_rope(d.text, dim, local ? 10000.0 : 1000000.0,
                        local ? "sliding_attention" : "full_attention");
    return a;
  });

  // The last layers read the cache of the last earlier layer of their own kind.
  const int shared = d.text.size("num_kv_shared_layers", 0);
  const int first_shared = std::max(0, d.num_layers - shared);
  const bool wide = d.text.flag("use_double_wide_mlp", false);
  for (int i = first_shared; i < d.num_layers && d.text.ok(); ++i) {
    LayerConfig& layer = c.layers[static_cast<std::size_t>(i)];
    for (int j = first_shared - 1; j >= 0 && layer.kv_source < 0; --j)
      if (words[static_cast<std::size_t>(j)] == words[static_cast<std::size_t>(i)])
        layer.kv_source = j;
    if (layer.kv_source < 0)
      d.complain("config: layer " + std::to_string(i) +
                 " shares a cache that no earlier layer writes");
    if (wide) layer.intermediate_size *= 2;
  }
  if (d.text.flag("enable_moe_block", false)) {
    d.read_moe();
    for (LayerConfig& layer : c.layers) layer.feed_forward = FeedForwardKind::dense_and_moe;
  }
}

void build_gpt_oss(ConfigDraft& d) {
  d.read_common(150000.0);
  ModelConfig& c = d.config;
  c.activation = Activation::swiglu_oai;
  c.swiglu_limit = d.text.number("swiglu_limit", 7.0);
  c.swiglu_alpha = 1.702;
  d.attention.sinks = true;
  d.fill(d.layer_words([](int i) { return i % 2 == 0 ? LayerWord::sliding : LayerWord::full; }),
         [&](int, LayerWord word) {
           return word == LayerWord::sliding ? d.windowed(d.attention) : d.attention;
         });
  d.read_moe();
  c.moe.softmax_after_topk = true;
  c.mlp_bias = true;
}

void build_llama4(ConfigDraft& d) {
  d.read_common(500000.0);
  ModelConfig& c = d.config;
  d.attention.rope.interleaved = true;
  AttentionConfig chunked = d.attention;
  chunked.kind = AttentionLayerKind::chunked;
  chunked.attention_chunk = d.text.integer("attention_chunk_size", 8192);
  if (d.text.flag("use_qk_norm", true)) chunked.qk_norm = QkNorm::l2;
  AttentionConfig full = d.attention;
  full.rope = {};
  if (d.text.flag("attn_temperature_tuning", true)) {
    full.temperature_scale = d.text.number("attn_scale", 0.1);
    full.temperature_floor = d.text.number("floor_scale", 8192.0);
  }
  // no_rope_layers: 1 = has RoPE; an empty list means the interval.
  const std::vector<std::int64_t> rotated = d.text.integers("no_rope_layers");
  const int interval = std::max(1, d.text.size("no_rope_layer_interval", 4));
  const auto has_rope = [&](int i) {
    const auto n = static_cast<std::size_t>(i);
    return n < rotated.size() ? rotated[n] != 0 : (i + 1) % interval != 0;
  };
  d.fill(d.layer_words([&](int i) { return has_rope(i) ? LayerWord::chunked : LayerWord::full; }),
         [&](int i, LayerWord word) {
           AttentionConfig a = has_rope(i) ? chunked : full;
           if (word != LayerWord::chunked) {
             a.kind = AttentionLayerKind::full;
             a.attention_chunk = 0;
           }
           return a;
         });
  const int dense_size = d.text.size("intermediate_size_mlp", c.intermediate_size);
  d.read_moe();
  c.moe.intermediate_size = c.intermediate_size;
  c.moe.num_shared_experts = 1;
  c.moe.shared_intermediate_size = c.intermediate_size;
  c.moe.score = RouterScore::sigmoid;
  c.moe.selection_bias = false;
  c.moe.scale_input = true;
  for (LayerConfig& layer : c.layers) layer.intermediate_size = dense_size;
}

void build_mimo_v2(ConfigDraft& d) {
  d.read_common(5000000.0);
  ModelConfig& c = d.config;
  d.attention.value_scale = d.text.number("attention_value_scale", 1.0);
  d.attention.o_bias = false;
  const int dim = d.text.size("head_dim", 192);
  AttentionConfig full = d.attention;
  full.head_dim_vo = d.text.size("v_head_dim", 128);
  full.sinks = d.text.flag("add_full_attention_sink_bias", false);
  full.rope = parse_rope(d.text, dim, 5000000.0, "full_attention");

  AttentionConfig sliding = d.windowed(full);
  // sliding_window_size counts the keys before the query's own.
  if (d.text.has("sliding_window_size"))
    sliding.sliding_window = d.text.integer("sliding_window_size", 0) + 1;
  sliding.num_qo_heads = d.text.size("swa_num_attention_heads", full.num_qo_heads);
  sliding.num_kv_heads = d.text.size("swa_num_key_value_heads", 2 * full.num_kv_heads);
  sliding.head_dim_qk = d.text.size("swa_head_dim", full.head_dim_qk);
  sliding.head_dim_vo = d.text.size("swa_v_head_dim", full.head_dim_vo);
  sliding.sm_scale = 1.0 / std::sqrt(static_cast<double>(sliding.head_dim_qk));
  sliding.sinks = d.text.flag("add_swa_attention_sink_bias", true);
  if (d.text.has("rope_parameters")) {
    sliding.rope = parse_rope(d.text, sliding.head_dim_qk, 10000.0, "sliding_attention");
  } else {
    sliding.rope.theta = d.text.number("swa_rope_theta", 10000.0);
  }
  const std::vector<std::int64_t> pattern = d.text.integers("hybrid_layer_pattern");  // 1 = sliding
  d.fill(d.layer_words([&](int i) {
    const auto n = static_cast<std::size_t>(i);
    if (n < pattern.size()) return pattern[n] != 0 ? LayerWord::sliding : LayerWord::full;
    return i == 0 || (i + 1) % 6 == 0 ? LayerWord::full : LayerWord::sliding;
  }),
         [&](int, LayerWord word) { return word == LayerWord::sliding ? sliding : full; });
  d.read_moe();
  c.moe.score = RouterScore::sigmoid;
  c.moe.selection_bias = true;
}

}  // namespace attune::model
