#include "model/gguf_config.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "kernels/ops/dequant.hpp"
#include "model/weights/gguf_names.hpp"

namespace attune::model {
namespace {

constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxWidth = 1 << 20;

struct Family {
  std::string_view gguf;
  std::string_view architecture;
  std::string_view model_type;
  bool interleaved_rope = false;
};
constexpr Family kFamilies[] = {{"llama", "LlamaForCausalLM", "llama", true},
                                {"mistral3", "MistralForCausalLM", "mistral", true},
                                {"smollm3", "SmolLM3ForCausalLM", "smollm3", true},
                                {"granite", "GraniteForCausalLM", "granite", true},
                                {"qwen2", "Qwen2ForCausalLM", "qwen2"},
                                {"qwen2moe", "Qwen2MoeForCausalLM", "qwen2_moe"},
                                {"qwen3", "Qwen3ForCausalLM", "qwen3"},
                                {"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe"},
                                {"gemma", "GemmaForCausalLM", "gemma"},
                                {"gemma2", "Gemma2ForCausalLM", "gemma2"},
                                {"gemma3", "Gemma3ForCausalLM", "gemma3_text"},
                                {"phi3", "Phi3ForCausalLM", "phi3"},
                                {"olmo2", "Olmo2ForCausalLM", "olmo2"}};

/// Reads the keys "<architecture>.<key>"; the first problem is kept.
class Reader {
 public:
  Reader(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  [[nodiscard]] const std::string& problem() const { return problem_; }
  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  /// A whole number in 1 … limit that must be there.
  std::int64_t size(std::string_view key, std::int64_t limit = kMaxWidth) {
    const auto value = file_.integer(full(key));
    if (value && *value >= 1 && *value <= limit) return *value;
    fail(full(key) + (value ? " is " + std::to_string(*value) : std::string(" is missing")) +
         "; a whole number from 1 to " + std::to_string(limit) + " is needed");
    return 1;
  }
  /// The same with a default where it is absent.
  std::int64_t size_or(std::string_view key, std::int64_t otherwise,
                       std::int64_t limit = kMaxWidth) {
    return file_.find(full(key)) == nullptr ? otherwise : size(key, limit);
  }
  /// One number for all layers, or an array with one each.
  std::int64_t layer_size(std::string_view key, std::int64_t layer) {
    const GgufArray* array = file_.array(full(key));
    if (array == nullptr) return size(key);
    const bool numbers = array->element != GgufType::string && array->element != GgufType::array;
    if (!numbers || static_cast<std::uint64_t>(layer) >= array->count) {
      fail(full(key) + " has no number for layer " + std::to_string(layer));
      return 1;
    }
    const double value = array->number(static_cast<std::uint64_t>(layer));
    if (value >= 1 && value <= static_cast<double>(kMaxWidth))
      return static_cast<std::int64_t>(value);
    fail(full(key) + " has no usable number for layer " + std::to_string(layer));
    return 1;
  }
  double number(std::string_view key, double otherwise) {
    const auto value = file_.number(full(key));
    if (!value) return otherwise;
    if (std::isfinite(*value)) return *value;
    fail(full(key) + " is not finite");
    return otherwise;
  }
  [[nodiscard]] std::string_view word(std::string_view key) const {
    return file_.string(full(key)).value_or("");
  }

 private:
  [[nodiscard]] std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  const GgufFile& file_;
  std::string prefix_;
  std::string problem_;
};

const GgufTensor* tensor(const GgufFile& file, std::string_view name) {
  const auto found = std::ranges::find(file.tensors(), name, &GgufTensor::name);
  return found == file.tensors().end() ? nullptr : &*found;
}

/// Divisors of the frequencies that some files keep as a tensor.
std::vector<double> rope_factors(const GgufFile& file, std::string_view name, int pairs) {
  const GgufTensor* found = tensor(file, name);
  if (found == nullptr || !found->view.defined() || found->view.num_elements() != pairs) return {};
  std::vector<float> values(static_cast<std::size_t>(pairs));
  read_f32(found->view, values);
  return {values.begin(), values.end()};
}

RopeConfig read_rope(const GgufFile& file, Reader& in, const Family& family, int head_dim,
                     std::int64_t context_length) {
  RopeConfig rope;
  rope.type = RopeType::standard;
  rope.interleaved = family.interleaved_rope;
  rope.theta = in.number("rope.freq_base", 10000.0);
  rope.rotary_dim = static_cast<int>(in.size_or("rope.dimension_count", head_dim, head_dim));
  if (rope.rotary_dim % 2 != 0) in.fail("rope.dimension_count is odd");
  rope.factor = in.number("rope.scaling.factor", in.number("rope.scale_linear", 1.0));
  rope.original_context =
      in.size_or("rope.scaling.original_context_length", context_length, std::int64_t{1} << 40);
  const std::string_view scaling = in.word("rope.scaling.type");
  if (!(rope.theta > 0 && rope.factor > 0))
    in.fail("rope.freq_base or its scaling is not positive");
  if (scaling == "yarn") {
    rope.type = RopeType::yarn;
    rope.beta_fast = in.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
    rope.beta_slow = in.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
  } else if (scaling == "linear" || (scaling.empty() && rope.factor != 1.0)) {
    rope.type = RopeType::linear;
  } else if (!scaling.empty() && scaling != "none" && scaling != "longrope") {
    in.fail("rope.scaling.type is '" + std::string(scaling) +
            "', known are none, linear, yarn, longrope");
  }

  const int pairs = rope.rotary_dim / 2;
  if (auto factors = rope_factors(file, "rope_freqs.weight", pairs); !factors.empty()) {
    rope.type = RopeType::longrope;
    rope.short_factor = factors;
    rope.long_factor = std::move(factors);
    rope.attention_factor = 1.0;
  } else if (auto longer = rope_factors(file, "rope_factors_long.weight", pairs); !longer.empty()) {
    rope.type = RopeType::longrope;
    rope.long_factor = std::move(longer);
    rope.short_factor = rope_factors(file, "rope_factors_short.weight", pairs);
    if (rope.short_factor.empty()) in.fail("rope_factors_short.weight is missing or misshapen");
    const double factor = in.number("rope.scaling.attn_factor", 0.0);
    if (factor > 0) rope.attention_factor = factor;
  }
  for (const auto* factors : {&rope.short_factor, &rope.long_factor})
    for (double f : *factors)
      if (!(f > 0)) in.fail("a RoPE frequency factor is not positive");
  return rope;
}

void read_moe(Reader& in, const Family& family, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.num_experts = static_cast<int>(in.size("expert_count", 65536));
  moe.experts_per_token = static_cast<int>(in.size("expert_used_count", moe.num_experts));
  moe.intermediate_size =
      static_cast<int>(in.size_or("expert_feed_forward_length", config.intermediate_size));
  if (family.gguf == "llama") moe.softmax_after_topk = true;  // Mixtral
  if (family.gguf == "qwen3moe") moe.normalize_topk = true;
  if (family.gguf == "qwen2moe") {
    moe.num_shared_experts = 1;
    moe.shared_gate = true;
    moe.shared_intermediate_size = static_cast<int>(in.size("expert_shared_feed_forward_length"));
  }
}

/// What each family does besides the common Llama.
void apply_family(const GgufFile& file, Reader& in, const Family& family, ModelConfig& config,
                  AttentionConfig& attention) {
  const bool gemma = family.gguf.starts_with("gemma");
  if (gemma) {
    config.activation = Activation::gelu_tanh;
    config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  }
  if (family.gguf == "gemma2" || family.gguf == "gemma3") {
    config.norm_placement = NormPlacement::sandwich;
    attention.sliding_window = in.size("attention.sliding_window", std::int64_t{1} << 40);
    // The 27B models scale by hidden / heads instead of the head dim.
    const std::int64_t largest = family.gguf == "gemma2" ? 46 : 62;
    if (config.num_layers() == largest)
      attention.sm_scale =
          1.0 / std::sqrt(static_cast<double>(config.hidden_size) / attention.num_qo_heads);
  }
  if (family.gguf == "gemma2") {
    attention.logits_soft_cap = in.number("attn_logit_softcapping", 50.0);
    config.final_logits_soft_cap = in.number("final_logit_softcapping", 30.0);
  }
  if (family.gguf == "olmo2") config.norm_placement = NormPlacement::post;
  if (family.gguf == "granite") {
    config.embedding_multiplier = in.number("embedding_scale", 1.0);
    config.residual_multiplier = in.number("residual_scale", 1.0);
    config.logits_multiplier = 1.0 / in.number("logit_scale", 1.0);
    if (const double scale = in.number("attention.scale", 0.0); scale > 0)
      attention.sm_scale = scale;
  }
  if (tensor(file, "blk.0.attn_q_norm.weight") != nullptr)
    attention.qk_norm = family.gguf == "olmo2" ? QkNorm::per_layer : QkNorm::per_head;
  attention.qkv_bias = tensor(file, "blk.0.attn_q.bias") != nullptr;
  attention.o_bias = tensor(file, "blk.0.attn_output.bias") != nullptr;
}

/// Which layers differ from each other; fills config.attention and the layers' indices.
void place_attention(Reader& in, const Family& family, const AttentionConfig& base,
                     ModelConfig& config) {
  AttentionConfig full = base;
  full.sliding_window = 0;
  AttentionConfig other = base;
  int period = 0;  // the last layer of each period is the full (or unrotated) one
  if (family.gguf == "smollm3") {
    period = 4;
    full.rope = RopeConfig{};
  } else if (family.gguf == "gemma2" || family.gguf == "gemma3") {
    period = family.gguf == "gemma2" ? 2 : 6;
    other.kind = AttentionLayerKind::sliding;
    if (family.gguf == "gemma3") {
      other.rope.type = RopeType::standard;
      other.rope.factor = 1.0;
      other.rope.theta = in.number("rope.freq_base_swa", 10000.0);
    }
  } else if (const std::int64_t window =
                 in.size_or("attention.sliding_window", 0, std::int64_t{1} << 40);
             window > 0 && window < config.context_length) {
    other.kind = AttentionLayerKind::sliding;
    other.sliding_window = window;
  }
  config.attention = {other};
  if (period > 0) config.attention.push_back(full);
  for (int i = 0; i < config.num_layers(); ++i)
    config.layers[static_cast<std::size_t>(i)].attention =
        period > 0 && (i + 1) % period == 0 ? 1 : 0;
}

}  // namespace

Result<ModelConfig> config_from_gguf(const GgufFile& file, const std::string& path) {
  const std::string_view word = file.string("general.architecture").value_or("");
  const auto* found = std::ranges::find(kFamilies, word, &Family::gguf);
  if (found == std::end(kFamilies))
    return invalid_argument(path + " holds the architecture '" + std::string(word) +
                            "'; GGUF files of " + gguf_architectures() + " are read");
  const Family& family = *found;
  Reader in(file, family.gguf);

  ModelConfig config;
  config.architecture = family.architecture;
  config.model_type = family.model_type;
  config.hidden_size = static_cast<int>(in.size("embedding_length"));
  config.context_length = in.size("context_length", std::numeric_limits<std::int32_t>::max());
  config.intermediate_size = static_cast<int>(in.layer_size("feed_forward_length", 0));
  config.norm_eps = in.number("attention.layer_norm_rms_epsilon", 1e-5);
  if (!(config.norm_eps >= 0.0)) in.fail("attention.layer_norm_rms_epsilon is negative");
  config.tie_embeddings = tensor(file, "output.weight") == nullptr;
  const GgufTensor* table = tensor(file, "token_embd.weight");
  config.vocab_size = table == nullptr ? 0 : table->view.rows();
  if (config.vocab_size < 1) in.fail("token_embd.weight is missing");
  const std::int64_t num_layers = in.size("block_count", kMaxLayers);
  const auto token = [&](const char* key) -> std::optional<std::int32_t> {
    const auto id = file.integer(std::string("tokenizer.ggml.") + key + "_token_id");
    if (!id || *id < 0 || *id >= config.vocab_size) return std::nullopt;
    return static_cast<std::int32_t>(*id);
  };
  config.bos_token = token("bos");
  config.pad_token = token("padding");
  for (const char* end : {"eos", "eot", "eom"})
    if (const auto id = token(end);
        id && std::ranges::find(config.eos_tokens, *id) == config.eos_tokens.end())
      config.eos_tokens.push_back(*id);

  AttentionConfig attention;
  attention.num_qo_heads = static_cast<int>(in.layer_size("attention.head_count", 0));
  attention.num_kv_heads = file.find(std::string(family.gguf) + ".attention.head_count_kv")
                               ? static_cast<int>(in.layer_size("attention.head_count_kv", 0))
                               : attention.num_qo_heads;
  const int head_dim = std::max(1, config.hidden_size / attention.num_qo_heads);
  attention.head_dim_qk = static_cast<int>(in.size_or("attention.key_length", head_dim));
  attention.head_dim_vo =
      static_cast<int>(in.size_or("attention.value_length", attention.head_dim_qk));
  if (attention.num_qo_heads % attention.num_kv_heads != 0)
    in.fail("attention.head_count is not a multiple of attention.head_count_kv");
  attention.sm_scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim_qk));
  attention.rope = read_rope(file, in, family, attention.head_dim_qk, config.context_length);

  const bool moe = file.integer(std::string(family.gguf) + ".expert_count").value_or(0) > 0;
  if (moe) read_moe(in, family, config);
  for (std::int64_t i = 0; i < num_layers && in.problem().empty(); ++i) {
    LayerConfig& layer = config.layers.emplace_back();
    layer.feed_forward = moe ? FeedForwardKind::moe : FeedForwardKind::dense;
    layer.intermediate_size = static_cast<int>(in.layer_size("feed_forward_length", i));
    if (in.layer_size("attention.head_count", i) != attention.num_qo_heads)
      in.fail("attention.head_count differs between layers, which is not read from GGUF");
  }
  if (!in.problem().empty()) return invalid_argument(path + ": " + in.problem());
  apply_family(file, in, family, config, attention);
  place_attention(in, family, attention, config);
  if (!in.problem().empty()) return invalid_argument(path + ": " + in.problem());
  return config;
}

}  // namespace attune::model
