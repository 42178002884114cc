// Latent attention, its sparse and compressed descendants, and MiniMax-M3's block-sparse layers.
#include <algorithm>
#include <cmath>

#include "model/config_draft.hpp"
#include "model/config_rope.hpp"

namespace attune::model {
namespace {

/// DeepSeek's temperature: with mscale_all_dim the logits grow by (0.1 * mscale_all_dim *
/// ln(factor) + 1)^2.
double yarn_scale(const RopeConfig& rope) {
  if (rope.type == RopeType::standard || rope.mscale_all_dim == 0.0 || rope.factor <= 1.0)
    return 1.0;
  const double m = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1.0;
  return m * m;
}

void read_indexer(const ConfigDraft& d, AttentionConfig& a) {
  a.indexer.num_heads = d.text.size("index_n_heads");
  a.indexer.head_dim = d.text.size("index_head_dim");
  a.indexer.topk = d.text.size("index_topk");
}

/// GLM-5.2: "shared" layers reuse the top-k of the layer before.
void read_indexer_types(ConfigDraft& d) {
  const std::vector<std::string> types = d.text.texts("indexer_types");
  for (std::size_t i = 0; i < types.size() && i < d.config.layers.size(); ++i) {
    d.config.layers[i].owns_indexer = types[i] != "shared";
    if (types[i] != "full" && types[i] != "shared")
      d.complain("config: indexer_types holds '" + types[i] + "', wanted full or shared");
  }
  if (!d.config.layers.empty() && !d.config.layers[0].owns_indexer)
    d.complain("config: indexer_types begins with shared: there is no layer before the first");
}

/// Of a block-sparse layer.
void check_block_indexer(const ConfigDraft& d, const AttentionConfig& a, int layer,
                         const std::vector<std::int64_t>& selects_only) {
  const IndexerConfig& indexer = a.indexer;
  const auto n = static_cast<std::size_t>(layer);
  if (n < selects_only.size() && selects_only[n] == 0)
    d.complain("config: sparse_disable_index_value is 0 at layer " + std::to_string(layer) +
               ": an indexer that adds to the output is not known, wanted 1");
  if (indexer.num_heads != a.num_kv_heads)
    d.complain("config: " + std::to_string(indexer.num_heads) + " index heads beside " +
               std::to_string(a.num_kv_heads) + " KV heads, wanted as many");
  if (indexer.head_dim < a.rope.rotary_dim)
    d.complain("config: index heads of " + std::to_string(indexer.head_dim) + " dims, wanted the " +
               std::to_string(a.rope.rotary_dim) + " that turn at least");
  if (indexer.init_blocks + indexer.local_blocks > indexer.topk)
    d.complain("config: " + std::to_string(indexer.init_blocks) + " first and " +
               std::to_string(indexer.local_blocks) + " last blocks are always kept, of " +
               std::to_string(indexer.topk) + " in all");
}

}  // namespace

void read_mla(ConfigDraft& d) {
  AttentionConfig& a = d.attention;
  a.kind = AttentionLayerKind::mla;
  a.kv_lora_rank = d.text.size("kv_lora_rank");
  a.q_lora_rank = d.text.size("q_lora_rank", 0);
  a.qk_nope_head_dim = d.text.size("qk_nope_head_dim");
  a.qk_rope_head_dim = d.text.size("qk_rope_head_dim");
  a.head_dim_qk = a.qk_nope_head_dim + a.qk_rope_head_dim;
  a.head_dim_vo = d.text.size("v_head_dim", d.config.hidden_size / a.num_qo_heads);
  a.num_kv_heads = a.num_qo_heads;
  a.rope = parse_rope(d.text, a.qk_rope_head_dim, 10000.0);
  a.rope.interleaved = true;
  a.sm_scale = yarn_scale(a.rope) / std::sqrt(static_cast<double>(a.head_dim_qk));
}

void build_deepseek(ConfigDraft& d) {
  d.config.norm_eps = 1e-6;
  d.read_common();
  const bool v2 = d.config.model_type == "deepseek_v2";
  if (d.text.flag("use_mla", true)) {
    read_mla(d);
    if (d.text.has("index_topk")) {
      d.attention.kind = AttentionLayerKind::sparse_mla;
      read_indexer(d, d.attention);
      if (d.attention.q_lora_rank == 0)
        d.complain("config: an indexer reads the query latent, but q_lora_rank is 0 or missing");
      // DeepSeek-V3.2's indexer turns halves, GLM-5's turns pairs.
      d.attention.indexer.rope_interleaved =
          d.text.flag("indexer_rope_interleave", d.config.model_type == "glm_moe_dsa");
    }
  }
  d.fill_uniform();
  read_indexer_types(d);
  d.read_moe();
  if (!v2) {
    d.config.moe.score = RouterScore::sigmoid;
    d.config.moe.selection_bias = true;
    d.config.moe.normalize_topk = d.text.flag("norm_topk_prob", true);
  }
}

void build_longcat(ConfigDraft& d) {
  d.read_common(10000000.0);
  // A decoder layer holds two attentions and two dense feed-forwards, and experts beside the first.
  d.num_layers = 2 * d.layer_count("num_layers");
  read_mla(d);
  AttentionConfig& a = d.attention;
  a.q_lora_scale =
      std::sqrt(static_cast<double>(d.config.hidden_size) / std::max(1, a.q_lora_rank));
  a.kv_lora_scale = std::sqrt(static_cast<double>(d.config.hidden_size) / a.kv_lora_rank);
  a.rope = parse_rope(d.text, a.qk_rope_head_dim, 10000000.0);
  a.rope.interleaved = true;
  d.fill_uniform();
  d.read_moe();
  d.config.moe.num_zero_experts = d.text.size("zero_expert_num", 0);
  d.config.moe.selection_bias = true;
  for (std::size_t i = 0; i < d.config.layers.size(); ++i)
    d.config.layers[i].feed_forward =
        i % 2 == 0 ? FeedForwardKind::dense_and_moe : FeedForwardKind::dense;
}

void build_minicpm3(ConfigDraft& d) {
  d.config.tie_embeddings = true;
  d.read_common();
  read_mla(d);
  d.attention.rope.interleaved = false;
  ModelConfig& c = d.config;
  c.embedding_multiplier = d.text.number("scale_emb", 1.0);
  const double root = std::sqrt(static_cast<double>(d.num_layers));
  c.residual_multiplier = d.text.number("scale_depth", root) / root;
  c.logits_multiplier = d.text.number("dim_model_base", c.hidden_size) / c.hidden_size;
  d.fill_uniform();
}

void build_deepseek_v4(ConfigDraft& d) {
  d.config.norm_eps = 1e-6;
  d.read_common();
  ModelConfig& c = d.config;
  c.hyper_connections = d.text.size("hc_mult", 4);
  c.hyper_sinkhorn_iterations = d.text.size("hc_sinkhorn_iters", 20);
  c.hyper_eps = d.text.number("hc_eps", 1e-6);
  c.compress_rope_theta = d.text.number("compress_rope_theta", 160000.0);
  c.swiglu_limit = d.text.number("swiglu_limit", 10.0);
  if (!d.text.has("intermediate_size")) c.intermediate_size = d.text.size("moe_intermediate_size");

  AttentionConfig base = d.windowed(d.attention);
  base.kind = AttentionLayerKind::dsv4;
  base.sinks = true;
  base.q_lora_rank = d.text.size("q_lora_rank");
  base.qk_rope_head_dim = d.text.size("qk_rope_head_dim", 64);
  base.o_groups = d.text.size("o_groups");
  base.o_lora_rank = d.text.size("o_lora_rank");
  AttentionConfig compressed = base;
  if (d.text.has("rope_parameters")) {
    base.rope = parse_rope(d.text, base.head_dim_qk, 10000.0, "main");
    compressed.rope = parse_rope(d.text, base.head_dim_qk, c.compress_rope_theta, "compress");
  } else {  // older files: the scaling belongs to the layers with compressed keys
    compressed.rope = parse_rope(d.text, base.qk_rope_head_dim, 10000.0);
    base.rope = unscaled(compressed.rope);
    compressed.rope.theta = c.compress_rope_theta;
  }
  base.rope.interleaved = compressed.rope.interleaved = true;
  compressed.rope.attention_factor = 1.0;  // published layers turn without YaRN's own

  const auto rates = d.text.section("compress_rates");
  const int dense_rate = rates ? rates->size("heavily_compressed_attention", 128) : 128;
  const int sparse_rate = rates ? rates->size("compressed_sparse_attention", 4) : 4;
  constexpr std::int64_t kLargestRatio = 1 << 20;
  // One entry a layer and one for each predictor of later tokens.
  const std::vector<std::int64_t> ratios = d.text.integers("compress_ratios");
  if (!ratios.empty() && static_cast<int>(ratios.size()) < d.num_layers)
    d.complain("config: compress_ratios has " + std::to_string(ratios.size()) +
               " entries, wanted at least " + std::to_string(d.num_layers));
  for (std::int64_t ratio : ratios)
    if (ratio < 0 || ratio > c.context_length || ratio > kLargestRatio)
      d.complain("config: compress_ratios holds " + std::to_string(ratio) +
                 ", wanted 0 or a number of tokens");
  d.fill(d.layer_words([&](int i) {
    const auto n = static_cast<std::size_t>(i);
    const std::int64_t ratio =
        n < ratios.size() ? ratios[n] : (i % 2 == 0 ? sparse_rate : dense_rate);
    if (ratio == 0) return LayerWord::sliding;
    return ratio >= dense_rate ? LayerWord::heavily_compressed : LayerWord::compressed;
  }),
         [&](int i, LayerWord word) {
           if (word == LayerWord::sliding) return base;
           AttentionConfig a = compressed;
           const auto n = static_cast<std::size_t>(i);
           a.compress_ratio = word == LayerWord::compressed ? sparse_rate : dense_rate;
           if (n < ratios.size()) a.compress_ratio = static_cast<int>(ratios[n]);
           if (word == LayerWord::compressed) read_indexer(d, a);
           return a;
         });
  d.read_moe();
  c.moe.score = RouterScore::sqrt_softplus;
  c.moe.normalize_topk = d.text.flag("norm_topk_prob", true);
  c.moe.selection_bias = true;
  if (d.text.has("num_hash_layers")) c.moe.num_hash_layers = d.text.size("num_hash_layers", 0);
}

void build_minimax_m3(ConfigDraft& d) {
  d.config.norm_eps = 1e-6;
  d.read_common(5000000.0);
  ModelConfig& c = d.config;
  c.activation = Activation::swiglu_oai;
  c.norm = NormKind::rms_plus_one;
  c.swiglu_alpha = d.text.number("swiglu_alpha", 1.702);
  c.swiglu_limit = d.text.number("swiglu_limit", 7.0);
  d.attention.qk_norm = QkNorm::per_head;

  AttentionConfig sparse = d.attention;
  sparse.kind = AttentionLayerKind::minimax_sparse;
  std::vector<std::int64_t> pattern;
  std::vector<std::int64_t> selects_only;
  if (const auto s = d.text.section("sparse_attention_config")) {
    sparse.indexer = {.num_heads = s->size("sparse_num_index_heads"),
                      .head_dim = s->size("sparse_index_dim"),
                      .topk = s->size("sparse_topk_blocks"),
                      .block_size = s->size("sparse_block_size"),
                      .init_blocks = s->size("sparse_init_block", 0),
                      .local_blocks = s->size("sparse_local_block", 1)};
    pattern = s->integers("sparse_attention_freq");
    selects_only = s->integers("sparse_disable_index_value");
    if (const std::string pooling = s->text("sparse_score_type", "max"); pooling != "max")
      d.complain("config: sparse_score_type '" + pooling + "' is unknown, wanted max");
  } else {
    sparse.indexer = {.num_heads = d.text.size("index_n_heads", 4),
                      .head_dim = d.text.size("index_head_dim", 128),
                      .topk = d.text.size("index_topk_blocks", 16),
                      .block_size = d.text.size("index_block_size", 128),
                      .local_blocks = d.text.size("index_local_blocks", 1)};
  }
  d.fill(d.layer_words([&](int i) {
    const auto n = static_cast<std::size_t>(i);
    return n < pattern.size() && pattern[n] != 0 ? LayerWord::sparse : LayerWord::full;
  }),
         [&](int i, LayerWord word) {
           if (word != LayerWord::sparse) return d.attention;
           check_block_indexer(d, sparse, i, selects_only);
           return sparse;
         });
  const int dense_size = d.text.size("dense_intermediate_size", c.intermediate_size);
  d.read_moe();
  c.moe.intermediate_size = c.intermediate_size;
  c.moe.num_shared_experts = d.text.size("n_shared_experts", 1);
  c.moe.shared_intermediate_size =
      d.narrow(std::int64_t{c.moe.num_shared_experts} *
                   d.text.size("shared_intermediate_size", c.intermediate_size),
               "the shared experts' width");
  c.moe.score = RouterScore::sigmoid;
  c.moe.normalize_topk = true;
  c.moe.selection_bias = true;
  for (LayerConfig& layer : c.layers) layer.intermediate_size = dense_size;
}

}  // namespace attune::model
