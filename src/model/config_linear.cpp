// Families with linear layers: delta rules, state spaces, fixed decay, short convolutions.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/config_draft.hpp"
#include "model/config_rope.hpp"

namespace attune::model {
namespace {

std::int64_t wide(int n) { return n; }

LinearConfig read_gated_delta(const ConfigDraft& d) {
  LinearConfig g;
  g.variant = Variant::gdn;
  g.num_k_heads = d.text.size("linear_num_key_heads", d.attention.num_qo_heads);
  g.num_v_heads = d.text.size("linear_num_value_heads", d.attention.num_qo_heads);
  g.head_dim_k = d.text.size("linear_key_head_dim",
                             3 * d.config.hidden_size / (4 * std::max(1, g.num_k_heads)));
  g.head_dim_v = d.text.size("linear_value_head_dim", 2 * g.head_dim_k);
  g.conv_kernel = d.text.size("linear_conv_kernel_dim", 4);
  g.conv_dim = d.narrow(2 * wide(g.num_k_heads) * g.head_dim_k + wide(g.num_v_heads) * g.head_dim_v,
                        "the convolution's width");
  if (g.num_k_heads < 1 || g.num_v_heads % g.num_k_heads != 0)
    d.complain("config: " + std::to_string(g.num_k_heads) + " linear key heads do not divide " +
               std::to_string(g.num_v_heads) + " value heads");
  return g;
}

/// Mamba-2's gated norm is taken over each group of heads. transformers took it over the whole
/// width for Mamba-2, Bamba and Granite until it was repaired (wrong in 5.17, right in 5.24), so a
/// checkpoint that such a version made wants that.
bool norms_whole_width(const ConfigReader& t) {
  const std::string type = t.text("model_type");
  if (type != "mamba2" && type != "bamba" && type != "granitemoehybrid") return false;
  const std::string version = t.text("transformers_version");
  int minor = 0;
  return version.starts_with("5.") &&
         std::from_chars(version.data() + 2, version.data() + version.size(), minor).ec ==
             std::errc{} &&
         minor <= 17;
}

/// The Mamba-2 mixer, whose keys carry the prefix mamba_ in Bamba's dialect and none in Mamba's
/// own.
LinearConfig read_mamba2(const ConfigDraft& d) {
  const ConfigReader& t = d.text;
  LinearConfig m;
  m.variant = Variant::mamba2;
  m.num_v_heads = t.size(t.first_of({"mamba_n_heads", "mamba_num_heads", "num_heads"}));
  m.num_k_heads = t.size(t.first_of({"mamba_n_groups", "n_groups"}), 1);
  m.head_dim_k = t.size(t.first_of({"mamba_d_state", "ssm_state_size", "state_size"}));
  const int expand = t.size(t.first_of({"mamba_expand", "expand"}), 2);
  const int inner =
      t.size("mamba_d_ssm", d.narrow(wide(expand) * d.config.hidden_size, "Mamba's inner width"));
  const auto head_dim = t.first_of({"mamba_d_head", "mamba_head_dim", "head_dim"});
  // "auto" and absence mean the inner width over the heads.
  m.head_dim_v =
      t.is_text(head_dim) ? inner / m.num_v_heads : t.size(head_dim, inner / m.num_v_heads);
  m.conv_kernel = t.size(t.first_of({"mamba_d_conv", "conv_kernel"}), 4);
  m.conv_dim = d.narrow(wide(m.num_v_heads) * m.head_dim_v + 2 * wide(m.num_k_heads) * m.head_dim_k,
                        "the convolution's width");
  m.conv_bias = t.flag(t.first_of({"mamba_conv_bias", "use_conv_bias"}), true);
  m.proj_bias = t.flag(t.first_of({"mamba_proj_bias", "use_bias"}), false);
  m.chunk_size = t.size(t.first_of({"mamba_chunk_size", "chunk_size"}), 256);
  m.norm_groups = norms_whole_width(t) ? 1 : m.num_k_heads;
  const std::vector<double> limit = t.numbers("time_step_limit");
  if (limit.size() == 2) {
    m.time_step_min = limit[0];
    m.time_step_max = limit[1];
  }
  if (m.num_k_heads < 1 || m.num_v_heads % m.num_k_heads != 0)
    d.complain("config: " + std::to_string(m.num_k_heads) + " groups do not divide " +
               std::to_string(m.num_v_heads) + " Mamba heads");
  return m;
}

AttentionConfig same(const ConfigDraft& d) { return d.attention; }

template <std::size_t N>
void read_multipliers(const ConfigDraft& d, std::string_view key, std::array<double, N>& out) {
  const std::vector<double> values = d.text.numbers(key);
  if (values.empty()) return;
  if (values.size() != N) {
    d.complain("config: " + std::string(key) + " has " + std::to_string(values.size()) +
               " entries, wanted " + std::to_string(N));
    return;
  }
  std::copy(values.begin(), values.end(), out.begin());
}

}  // namespace

void build_qwen3_next(ConfigDraft& d) {
  d.config.norm_eps = 1e-6;
  d.read_common(10000000.0);
  d.config.norm = NormKind::rms_plus_one;
  d.attention.qk_norm = QkNorm::per_head;
  d.attention.output_gate = true;
  if (!d.text.has("rope_parameters") && !d.text.has("partial_rotary_factor"))
    d.attention.rope.rotary_dim = d.attention.head_dim_qk / 4;
  const LinearConfig gdn = read_gated_delta(d);
  const int every = std::max(1, d.text.size("full_attention_interval", 4));
  d.fill(
      d.layer_words(
          [&](int i) { return (i + 1) % every == 0 ? LayerWord::full : LayerWord::linear; }),
      [&](int, LayerWord) { return same(d); }, &gdn);
  d.read_moe();
  MoeConfig& moe = d.config.moe;
  moe.shared_intermediate_size = d.text.size("shared_expert_intermediate_size", 0);
  moe.num_shared_experts = moe.shared_intermediate_size > 0 ? 1 : 0;
  moe.shared_gate = true;
  if (moe.num_experts > 0) moe.normalize_topk = d.text.flag("norm_topk_prob", true);
}

void build_olmo_hybrid(ConfigDraft& d) {
  d.config.norm_eps = 1e-6;
  d.read_common(500000.0);
  d.config.norm_placement = NormPlacement::post;  // of attention layers; linear ones have it before
  d.attention.qk_norm = QkNorm::per_layer;
  if (!d.text.has("rope_parameters") && !d.text.has("rope_theta")) d.attention.rope = {};
  LinearConfig gdn = read_gated_delta(d);
  gdn.allow_negative_eigenvalues = d.text.flag("linear_allow_neg_eigval", true);
  d.fill(
      d.layer_words([](int i) { return i % 4 == 3 ? LayerWord::full : LayerWord::linear; }),
      [&](int, LayerWord) { return same(d); }, &gdn);
}

void build_kimi_linear(ConfigDraft& d) {
  d.read_common();
  d.config.norm_placement = NormPlacement::pre;
  read_mla(d);
  d.attention.output_gate = d.text.flag("mla_use_output_gate", false);
  if (d.text.flag("mla_use_nope", true)) d.attention.rope = {};
  d.attention.sm_scale = 1.0 / std::sqrt(static_cast<double>(d.attention.head_dim_qk));

  LinearConfig kda;
  kda.variant = Variant::kda;
  std::vector<std::int64_t> full;
  bool listed = false;
  if (const auto s = d.text.section("linear_attn_config")) {
    kda.num_k_heads = s->size("num_heads");
    kda.head_dim_k = s->size("head_dim");
    kda.conv_kernel = s->size("short_conv_kernel_size", 4);
    kda.gate_lower_bound = s->number("gate_lower_bound", 0.0);
    kda.full_rank_gate = s->flag("use_full_rank_gate", false);
    full = s->integers("full_attn_layers");  // counted from 1
    listed = true;
  } else {
    kda.num_k_heads = d.text.size("linear_num_heads", 32);
    kda.head_dim_k = d.text.size("linear_head_dim", 128);
    kda.conv_kernel = d.text.size("linear_conv_kernel_dim", 4);
  }
  kda.num_v_heads = kda.num_k_heads;
  kda.head_dim_v = kda.head_dim_k;
  kda.conv_dim = d.narrow(3 * wide(kda.num_k_heads) * kda.head_dim_k, "the convolution's width");
  d.fill(
      d.layer_words([&](int i) {
        const bool is_full =
            listed ? std::find(full.begin(), full.end(), i + 1) != full.end() : i > 0 && i % 4 == 0;
        return is_full ? LayerWord::full : LayerWord::linear;
      }),
      [&](int, LayerWord) { return same(d); }, &kda);
  d.read_moe();
  d.config.moe.score = RouterScore::sigmoid;
  d.config.moe.normalize_topk = d.text.flag("moe_renormalize", true);
  d.config.moe.selection_bias = true;
  d.config.moe.latent_size = d.text.size("routed_expert_hidden_size", 0);
}

void build_mamba2(ConfigDraft& d) {
  // No attention at all, so the common keys of attention are not there to read.
  d.config.norm_eps = 1e-5;
  d.attention = {};
  d.read_without_attention();
  const LinearConfig mamba = read_mamba2(d);
  d.fill(
      std::vector<LayerWord>(static_cast<std::size_t>(d.num_layers), LayerWord::linear),
      [&](int, LayerWord) { return same(d); }, &mamba);
  for (LayerConfig& layer : d.config.layers) layer.feed_forward = FeedForwardKind::none;
  d.config.positions = PositionKind::none;
}

void build_bamba(ConfigDraft& d) {
  d.read_common();
  const LinearConfig mamba = read_mamba2(d);
  const std::vector<std::int64_t> full = d.text.integers("attn_layer_indices");
  d.fill(
      d.layer_words([&](int i) {
        return std::find(full.begin(), full.end(), i) != full.end() ? LayerWord::full
                                                                    : LayerWord::linear;
      }),
      [&](int, LayerWord) { return same(d); }, &mamba);
}

void build_falcon_h1(ConfigDraft& d) {
  d.read_common();
  ModelConfig& c = d.config;
  c.embedding_multiplier = d.text.number("embedding_multiplier", 1.0);
  c.logits_multiplier = d.text.number("lm_head_multiplier", 1.0);
  c.attention_in_multiplier = d.text.number("attention_in_multiplier", 1.0);
  c.attention_out_multiplier = d.text.number("attention_out_multiplier", 1.0);
  c.ssm_in_multiplier = d.text.number("ssm_in_multiplier", 1.0);
  c.ssm_out_multiplier = d.text.number("ssm_out_multiplier", 1.0);
  read_multipliers(d, "mlp_multipliers", c.mlp_multipliers);
  d.attention.key_multiplier = d.text.number("key_multiplier", 1.0);
  LinearConfig mamba = read_mamba2(d);
  mamba.gated_norm = d.text.flag("mamba_rms_norm", false);
  mamba.norm_before_gate = d.text.flag("mamba_norm_before_gate", true);
  read_multipliers(d, "ssm_multipliers", mamba.ssm_multipliers);
  const int attention = d.add(d.attention);
  const int linear = d.add(mamba);
  for (int i = 0; i < d.num_layers; ++i)
    c.layers.push_back(
        {.attention = attention, .linear = linear, .intermediate_size = c.intermediate_size});
}

void build_granite_hybrid(ConfigDraft& d) {
  d.read_common();
  read_granite_multipliers(d);
  if (d.text.text("position_embedding_type") != "rope") d.attention.rope = {};
  const LinearConfig mamba = read_mamba2(d);
  d.fill(
      d.layer_words([](int) { return LayerWord::linear; }), [&](int, LayerWord) { return same(d); },
      &mamba);
  d.read_moe();
  MoeConfig& moe = d.config.moe;
  moe.softmax_after_topk = true;
  const int shared = d.text.size("shared_intermediate_size", 0);
  if (moe.num_experts > 0) {
    moe.num_shared_experts = shared > 0 ? 1 : 0;
    moe.shared_intermediate_size = shared;
  } else {  // the shared feed-forward is all there is
    for (LayerConfig& layer : d.config.layers) layer.intermediate_size = shared;
  }
}

void build_nemotron_h(ConfigDraft& d) {
  const std::string pattern = d.text.text("hybrid_override_pattern");
  std::vector<LayerWord> words;
  for (char letter : pattern) {
    switch (letter) {
      case 'M': words.push_back(LayerWord::linear); break;
      case '*': words.push_back(LayerWord::full); break;
      case '-': words.push_back(LayerWord::mlp); break;
      case 'E': words.push_back(LayerWord::moe); break;
      default:
        d.complain(std::string("config: hybrid_override_pattern holds '") + letter +
                   "', wanted M, *, - or E");
    }
  }
  d.num_layers_if_absent =
      static_cast<int>(words.empty() ? d.text.texts("layers_block_type").size() : words.size());
  d.read_common();
  ModelConfig& c = d.config;
  c.gated_mlp = false;
  c.positions = PositionKind::none;
  d.attention.rope = {};
  LinearConfig mamba = read_mamba2(d);
  mamba.time_step_min = d.text.number("time_step_min", 0.001);
  mamba.time_step_max = std::numeric_limits<double>::infinity();
  if (words.empty()) {
    words = d.layer_words([](int) { return LayerWord::linear; });
  } else if (static_cast<int>(words.size()) != d.num_layers) {
    d.complain("config: hybrid_override_pattern has " + std::to_string(words.size()) +
               " letters, wanted " + std::to_string(d.num_layers));
  }
  d.fill(
      words, [&](int, LayerWord) { return same(d); }, &mamba);
  const bool experts = std::find(words.begin(), words.end(), LayerWord::moe) != words.end();
  if (experts) {
    d.read_moe();
    c.moe.score = RouterScore::sigmoid;
    c.moe.selection_bias = true;
    c.moe.normalize_topk = d.text.flag("norm_topk_prob", true);
    c.moe.shared_intermediate_size = d.narrow(
        wide(c.moe.num_shared_experts) * d.text.size("moe_shared_expert_intermediate_size", 0),
        "the shared experts' width");
    c.moe.latent_size = d.text.size("moe_latent_size", 0);
  }
  for (std::size_t i = 0; i < c.layers.size() && i < words.size(); ++i)
    c.layers[i].feed_forward = words[i] == LayerWord::mlp   ? FeedForwardKind::dense
                               : words[i] == LayerWord::moe ? FeedForwardKind::moe
                                                            : FeedForwardKind::none;
}

void build_minimax(ConfigDraft& d) {
  d.read_common(1000000.0);
  ModelConfig& c = d.config;
  const ConfigReader& t = d.text;
  c.residual_after_norm = t.flag("postnorm", true);
  c.full_attention_mix = {
      t.number(t.first_of({"full_attn_alpha_factor", "layernorm_full_attention_alpha"}), 1.0),
      t.number(t.first_of({"full_attn_beta_factor", "layernorm_full_attention_beta"}), 1.0)};
  c.linear_attention_mix = {
      t.number(t.first_of({"linear_attn_alpha_factor", "layernorm_linear_attention_alpha"}), 1.0),
      t.number(t.first_of({"linear_attn_beta_factor", "layernorm_linear_attention_beta"}), 1.0)};
  c.mlp_mix = {t.number(t.first_of({"mlp_alpha_factor", "layernorm_mlp_alpha"}), 1.0),
               t.number(t.first_of({"mlp_beta_factor", "layernorm_mlp_beta"}), 1.0)};
  LinearConfig lightning;
  lightning.variant = Variant::lightning;
  lightning.num_k_heads = lightning.num_v_heads = d.attention.num_qo_heads;
  lightning.head_dim_k = lightning.head_dim_v = d.attention.head_dim_qk;
  lightning.chunk_size = t.size("block_size", 256);
  const std::vector<std::int64_t> types = t.integers("attn_type_list");  // 1 = full
  d.fill(
      d.layer_words([&](int i) {
        const auto n = static_cast<std::size_t>(i);
        const bool full = types.empty() ? i % 2 == 0 : n < types.size() && types[n] != 0;
        return full ? LayerWord::full : LayerWord::linear;
      }),
      [&](int, LayerWord) { return same(d); }, &lightning);
  d.read_moe();
  c.moe.normalize_topk = true;
  c.moe.shared_intermediate_size = t.size("shared_intermediate_size", 0);
}

void build_lfm2(ConfigDraft& d) {
  d.config.tie_embeddings = true;
  d.read_common(1000000.0);
  ModelConfig& c = d.config;
  d.attention.qk_norm = QkNorm::per_head;
  LinearConfig conv;
  conv.variant = Variant::short_conv;
  conv.conv_kernel = d.text.size("conv_L_cache", 3);
  conv.conv_dim = c.hidden_size;
  conv.conv_bias = d.text.flag("conv_bias", false);
  conv.gated_norm = false;
  const bool moe = c.model_type == "lfm2_moe";
  if (!moe) {
    // The file's width is that of an ungated feed-forward; two thirds of it, rounded up, are used.
    int width = d.text.size("block_ff_dim", c.intermediate_size);
    if (d.text.flag("block_auto_adjust_ff_dim", true)) {
      const int multiple = std::max(1, d.text.size("block_multiple_of", 256));
      const double factor = d.text.number("block_ffn_dim_multiplier", 1.0);
      if (!(factor > 0.0 && factor <= 16.0))
        d.complain("config: block_ffn_dim_multiplier is not in (0, 16]");
      else
        width = static_cast<int>(factor * (2 * width / 3));
      width = (width + multiple - 1) / multiple * multiple;
    }
    c.intermediate_size = width;
  }
  const std::vector<std::int64_t> full = d.text.integers("full_attn_idxs");
  d.fill(
      d.layer_words([&](int i) {
        return full.empty() || std::find(full.begin(), full.end(), i) != full.end()
                   ? LayerWord::full
                   : LayerWord::conv;
      }),
      [&](int, LayerWord) { return same(d); }, &conv);
  if (moe) {
    d.read_moe();
    c.moe.score = RouterScore::sigmoid;
    c.moe.selection_bias = d.text.flag("use_expert_bias", true);
    c.moe.normalize_topk = d.text.flag("norm_topk_prob", true);
  }
}

void build_zaya(ConfigDraft& d) {
  d.read_common(5000000.0);
  ModelConfig& c = d.config;
  c.router_hidden_size = d.text.size("router_hidden_size", 256);
  AttentionConfig& a = d.attention;
  a.cca_time0 = d.text.size("cca_time0", 2);
  a.cca_time1 = d.text.size("cca_time1", 2);
  LinearConfig conv;
  conv.variant = Variant::short_conv;
  conv.conv_kernel = a.cca_time0 + a.cca_time1 - 1;
  // cca_mixer.hpp: every lag of the first convolution that the second one reads, and the values'
  // delayed half.
  conv.conv_dim = d.narrow(a.cca_time1 * wide(a.num_qo_heads + a.num_kv_heads) * a.head_dim_qk +
                               wide(a.num_kv_heads) * a.head_dim_vo / 2,
                           "the convolution's width");
  conv.conv_bias = true;
  conv.gated_norm = false;
  d.fill(d.layer_words([](int) { return LayerWord::hybrid; }), [&](int, LayerWord word) {
    const bool sliding = word == LayerWord::hybrid_sliding;
    AttentionConfig mixed = sliding ? d.windowed(a) : a;
    mixed.rope =
        parse_rope_of(d, sliding ? "hybrid_sliding" : "hybrid", sliding ? 10000.0 : 5000000.0);
    return mixed;
  });
  const int linear = d.add(conv);
  for (LayerConfig& layer : c.layers) layer.linear = linear;
  d.read_moe();
  c.moe.selection_bias = true;
  c.moe.num_skip_experts = 1;
  c.residual_scaling = true;
}

}  // namespace attune::model
