#include "model/config_draft.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/config_rope.hpp"

namespace attune::model {
namespace {

DType checkpoint_dtype(const ConfigReader& text) {
  const std::string word = text.text(text.first_of({"dtype", "torch_dtype"}), "bfloat16");
  if (word == "float32") return DType::f32;
  if (word == "float16") return DType::f16;
  if (word != "bfloat16")
    text.complain("config: dtype '" + word + "' is unknown, wanted bfloat16, float16 or float32");
  return DType::bf16;
}

Activation activation(const ConfigReader& text) {
  const std::string word =
      text.text(text.first_of({"hidden_act", "hidden_activation", "mlp_hidden_act",
                               "activation_function", "dense_act_fn"}),
                "silu");
  if (word == "silu" || word == "swish") return Activation::silu;
  if (word == "gelu") return Activation::gelu;
  if (word == "gelu_pytorch_tanh" || word == "gelu_new" || word == "gelu_fast")
    return Activation::gelu_tanh;
  if (word == "relu") return Activation::relu;
  if (word == "relu2") return Activation::relu2;
  if (word == "swigluoai") return Activation::swiglu_oai;
  if (word == "situ") return Activation::situ;
  text.complain("config: activation '" + word + "' is unknown");
  return Activation::silu;
}

std::optional<LayerWord> layer_word(std::string_view word) {
  struct Row {
    std::string_view word;
    LayerWord means;
  };
  static constexpr Row kRows[] = {
      {"full_attention", LayerWord::full},
      {"attention", LayerWord::full},
      {"sliding_attention", LayerWord::sliding},
      {"chunked_attention", LayerWord::chunked},
      {"linear_attention", LayerWord::linear},
      {"mamba", LayerWord::linear},
      {"conv", LayerWord::conv},
      {"deepseek_sparse_attention", LayerWord::sparse},
      {"minimax_m3_sparse", LayerWord::sparse},
      {"compressed_sparse_attention", LayerWord::compressed},
      {"heavily_compressed_attention", LayerWord::heavily_compressed},
      {"hybrid", LayerWord::hybrid},
      {"hybrid_sliding", LayerWord::hybrid_sliding},
      {"mlp", LayerWord::mlp},
      {"moe", LayerWord::moe},
  };
  for (const Row& row : kRows)
    if (row.word == word) return row.means;
  return std::nullopt;
}

RouterScore router_score(const ConfigReader& text) {
  const std::string word =
      text.text(text.first_of({"scoring_func", "moe_router_activation_func"}), "softmax");
  if (word == "softmax") return RouterScore::softmax;
  if (word == "sigmoid") return RouterScore::sigmoid;
  if (word == "sqrtsoftplus") return RouterScore::sqrt_softplus;
  text.complain("config: scoring_func '" + word +
                "' is unknown, wanted softmax, sigmoid or sqrtsoftplus");
  return RouterScore::softmax;
}

std::optional<std::int32_t> token(const ConfigReader& text, std::string_view key) {
  if (!text.has(key)) return std::nullopt;
  const std::vector<std::int64_t> ids = text.integers(key);
  if (ids.empty() || ids[0] < 0) return std::nullopt;
  return static_cast<std::int32_t>(ids[0]);
}

/// A quantised checkpoint that stores scales for an FP8 cache asks for that cache.
std::optional<DType> checkpoint_kv_dtype(const ConfigReader& text) {
  const std::optional<ConfigReader> quantization = text.section("quantization_config");
  if (!quantization) return std::nullopt;
  if (quantization->is_text("kv_cache_quant_algo") &&
      quantization->text("kv_cache_quant_algo") == "FP8")
    return DType::fp8_e4m3;
  if (quantization->is_object("kv_cache_scheme")) {
    const std::optional<ConfigReader> scheme = quantization->section("kv_cache_scheme");
    if (scheme->text("type") == "float" && scheme->integer("num_bits", 0) == 8)
      return DType::fp8_e4m3;
  }
  return std::nullopt;
}

}  // namespace

ConfigDraft::ConfigDraft(const ConfigReader& reader, std::string architecture,
                         std::string model_type)
    : text(reader) {
  config.architecture = std::move(architecture);
  config.model_type = std::move(model_type);
}

void ConfigDraft::read_without_attention() {
  config.dtype = checkpoint_dtype(text);
  config.checkpoint_kv_dtype = checkpoint_kv_dtype(text);
  config.vocab_size = text.integer("vocab_size", config.vocab_size);
  config.hidden_size = text.size(text.first_of({"hidden_size", "d_model"}));
  config.intermediate_size =
      text.size(text.first_of({"intermediate_size", "ffn_hidden_size", "d_ff", "decoder_ffn_dim"}),
                config.intermediate_size);
  config.context_length =
      text.positions(text.first_of({"max_position_embeddings", "model_max_length",
                                    "max_target_positions", "n_positions"}),
                     config.context_length);
  config.tie_embeddings =
      text.flag(text.first_of({"tie_word_embeddings", "tie_embedding"}), config.tie_embeddings);
  config.bos_token = token(text, "bos_token_id");
  config.pad_token = token(text, "pad_token_id");
  for (std::int64_t id : text.integers("eos_token_id"))
    if (id >= 0) config.eos_tokens.push_back(static_cast<std::int32_t>(id));
  config.norm_eps =
      text.number(text.first_of({"rms_norm_eps", "norm_eps", "layernorm_epsilon",
                                 "layer_norm_epsilon", "layer_norm_eps", "block_norm_eps"}),
                  config.norm_eps);
  config.activation = activation(text);
  config.mlp_bias = text.flag("mlp_bias", config.mlp_bias);
  const auto layers = text.first_of({"num_hidden_layers", "num_layers"});
  num_layers =
      text.has(layers) || num_layers_if_absent == 0 ? layer_count(layers) : num_layers_if_absent;
}

int ConfigDraft::layer_count(std::string_view key) const {
  constexpr int kMostLayers = 100000;
  const int n = text.size(key);
  if (n <= kMostLayers) return n;
  complain("config: " + std::string(key) + " is " + std::to_string(n) + ", wanted at most " +
           std::to_string(kMostLayers));
  return 1;
}

void ConfigDraft::read_common(double default_theta) {
  read_without_attention();
  const auto heads = text.first_of({"num_attention_heads", "num_heads", "decoder_attention_heads"});
  attention.num_qo_heads = text.size(heads);
  attention.num_kv_heads = text.size("num_key_value_heads", attention.num_qo_heads);
  if (attention.num_kv_heads < 1 || attention.num_qo_heads % attention.num_kv_heads != 0)
    complain("config: " + std::to_string(attention.num_kv_heads) + " KV heads do not divide " +
             std::to_string(attention.num_qo_heads) + " heads");
  const auto head_dim = text.first_of({"head_dim", "attention_head_dim", "d_kv"});
  int rope_dim = 0;
  if (text.has("kv_lora_rank")) {  // latent attention: head_dim, where present, says something else
    rope_dim = text.size("qk_rope_head_dim");
    attention.head_dim_qk = text.size("qk_nope_head_dim") + rope_dim;
  } else {
    const bool implied = !text.has(head_dim);
    if (implied && config.hidden_size % attention.num_qo_heads != 0)
      complain("config: head_dim is missing, and hidden_size " +
               std::to_string(config.hidden_size) + " is no multiple of " +
               std::to_string(attention.num_qo_heads) + " heads");
    attention.head_dim_qk =
        implied ? std::max(1, config.hidden_size / attention.num_qo_heads) : text.size(head_dim);
    rope_dim = attention.head_dim_qk;
  }
  attention.head_dim_vo = attention.head_dim_qk;
  attention.sm_scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim_qk));
  attention.qkv_bias = text.flag("attention_bias", false);
  attention.o_bias = attention.qkv_bias;
  attention.rope = parse_rope(text, rope_dim, default_theta);
}

std::vector<LayerWord> ConfigDraft::layer_words(
    const std::function<LayerWord(int)>& missing) const {
  std::vector<LayerWord> words;
  const auto key = text.first_of({"layer_types", "layers_block_type"});
  if (text.has(key)) {
    for (const std::string& word : text.texts(key)) {
      const std::optional<LayerWord> known = layer_word(word);
      if (!known)
        complain("config: " + std::string(key) + " holds '" + word + "', which is unknown");
      words.push_back(known.value_or(LayerWord::full));
    }
    if (static_cast<int>(words.size()) != num_layers)
      complain("config: " + std::string(key) + " has " + std::to_string(words.size()) +
               " entries, wanted " + std::to_string(num_layers));
    return words;
  }
  for (int i = 0; i < num_layers; ++i) words.push_back(missing(i));
  return words;
}

int ConfigDraft::add(const AttentionConfig& entry) {
  auto& list = config.attention;
  const auto it = std::find(list.begin(), list.end(), entry);
  if (it != list.end()) return static_cast<int>(it - list.begin());
  list.push_back(entry);
  return static_cast<int>(list.size()) - 1;
}

int ConfigDraft::add(const LinearConfig& entry) {
  auto& list = config.linear;
  const auto it = std::find(list.begin(), list.end(), entry);
  if (it != list.end()) return static_cast<int>(it - list.begin());
  list.push_back(entry);
  return static_cast<int>(list.size()) - 1;
}

void ConfigDraft::fill_uniform() {
  const int index = add(attention);
  for (int i = 0; i < num_layers; ++i)
    config.layers.push_back({.attention = index, .intermediate_size = config.intermediate_size});
}

void ConfigDraft::fill(const std::vector<LayerWord>& words,
                       const std::function<AttentionConfig(int, LayerWord)>& attention_of,
                       const LinearConfig* linear) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    LayerConfig layer{.intermediate_size = config.intermediate_size};
    const LayerWord word = words[i];
    const bool is_linear = word == LayerWord::linear || word == LayerWord::conv;
    if (is_linear && linear == nullptr) {
      complain("config: layer " + std::to_string(i) + " is linear, which a " + config.model_type +
               " model does not have");
      return;
    }
    if (is_linear)
      layer.linear = add(*linear);
    else if (word != LayerWord::mlp && word != LayerWord::moe)
      layer.attention = add(attention_of(static_cast<int>(i), word));
    config.layers.push_back(layer);
  }
}

AttentionConfig ConfigDraft::windowed(AttentionConfig entry) const {
  entry.kind = AttentionLayerKind::sliding;
  entry.sliding_window = text.integer("sliding_window", 0);
  if (entry.sliding_window < 1)
    complain("config: layers slide, but sliding_window is missing or below 1");
  return entry;
}

void ConfigDraft::read_moe() {
  MoeConfig& moe = config.moe;
  moe.num_experts =
      text.size(text.first_of({"n_routed_experts", "num_local_experts", "num_experts"}), 0);
  if (moe.num_experts == 0) return;
  moe.experts_per_token =
      text.size(text.first_of({"num_experts_per_tok", "num_experts_per_token", "experts_per_token",
                               "moe_topk", "top_k_experts"}));
  if (moe.experts_per_token > moe.num_experts)
    complain("config: " + std::to_string(moe.experts_per_token) + " experts a token of " +
             std::to_string(moe.num_experts));
  moe.num_shared_experts = text.size(text.first_of({"n_shared_experts", "num_shared_experts"}), 0);
  moe.intermediate_size = text.size(
      text.first_of({"moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"}), 0);
  moe.shared_intermediate_size = narrow(
      std::int64_t{moe.num_shared_experts} * moe.intermediate_size, "the shared experts' width");
  moe.score = router_score(text);
  moe.normalize_topk = text.flag(text.first_of({"norm_topk_prob", "moe_renormalize"}), false);
  moe.routed_scale = text.number("routed_scaling_factor", 1.0);
  moe.num_groups = std::max(1, text.size(text.first_of({"n_group", "num_expert_group"}), 1));
  moe.topk_groups = std::max(1, text.size("topk_group", 1));
  moe.selection_bias = text.text("topk_method") == "noaux_tc" || moe.score == RouterScore::sigmoid;
  mark_moe_layers();
}

void ConfigDraft::mark_moe_layers() {
  std::vector<bool> sparse(config.layers.size(), true);
  if (text.has("mlp_layer_types")) {
    const std::vector<std::string> words = text.texts("mlp_layer_types");
    if (words.size() != config.layers.size())
      complain("config: mlp_layer_types has " + std::to_string(words.size()) + " entries, wanted " +
               std::to_string(config.layers.size()));
    for (std::size_t i = 0; i < words.size() && i < sparse.size(); ++i) {
      sparse[i] = words[i] != "dense";
      if (words[i] == "hash_moe") config.moe.num_hash_layers = static_cast<int>(i) + 1;
    }
  } else if (text.is_list("moe_layer_freq")) {
    const std::vector<std::int64_t> freq = text.integers("moe_layer_freq");
    for (std::size_t i = 0; i < sparse.size(); ++i) sparse[i] = i < freq.size() && freq[i] != 0;
  } else if (text.has("moe_layers")) {
    sparse.assign(sparse.size(), false);
    for (std::int64_t i : text.integers("moe_layers"))
      if (i >= 0 && i < static_cast<std::int64_t>(sparse.size()))
        sparse[static_cast<std::size_t>(i)] = true;
  } else {
    const int dense_first =
        text.size(text.first_of({"first_k_dense_replace", "num_dense_layers"}), 0);
    const int every = std::max(1, text.size(text.first_of({"moe_layer_freq", "decoder_sparse_step",
                                                           "interleave_moe_layer_step"}),
                                            1));
    const bool qwen = text.has("decoder_sparse_step") || text.has("interleave_moe_layer_step");
    for (std::size_t i = 0; i < sparse.size(); ++i) {
      const int n = static_cast<int>(i);
      sparse[i] = n >= dense_first && (qwen ? (n + 1) % every == 0 : n % every == 0);
    }
    for (std::int64_t i : text.integers("mlp_only_layers"))
      if (i >= 0 && i < static_cast<std::int64_t>(sparse.size()))
        sparse[static_cast<std::size_t>(i)] = false;
  }
  for (std::size_t i = 0; i < sparse.size(); ++i)
    if (sparse[i]) config.layers[i].feed_forward = FeedForwardKind::moe;
}

int ConfigDraft::narrow(std::int64_t n, std::string_view what) const {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (n >= 0 && n <= kMost) return static_cast<int>(n);
  complain("config: " + std::string(what) + " is " + std::to_string(n) + ", wanted at most " +
           std::to_string(kMost));
  return 1;
}

RopeConfig parse_rope_of(const ConfigDraft& draft, std::string_view layer_word,
                         double default_theta) {
  return parse_rope(draft.text, draft.attention.head_dim_qk, default_theta, layer_word);
}

RopeConfig unscaled(RopeConfig rope) {
  RopeConfig plain;
  plain.type = RopeType::standard;
  plain.theta = rope.theta;
  plain.rotary_dim = rope.rotary_dim;
  plain.frequency_dim = rope.frequency_dim;
  plain.turning_pairs = rope.turning_pairs;
  plain.interleaved = rope.interleaved;
  plain.original_context = rope.original_context;
  return plain;
}

void read_granite_multipliers(ConfigDraft& draft) {
  ModelConfig& c = draft.config;
  c.embedding_multiplier = draft.text.number("embedding_multiplier", 1.0);
  c.residual_multiplier = draft.text.number("residual_multiplier", 1.0);
  c.logits_multiplier = 1.0 / draft.text.number("logits_scaling", 1.0);
  draft.attention.sm_scale = draft.text.number("attention_multiplier", 1.0);
}

}  // namespace attune::model
