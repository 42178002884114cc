#include "model/config_parse.hpp"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/config_draft.hpp"
#include "model/linear_families.hpp"

namespace attune::model {
namespace {

using nlohmann::json;

constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", build_llama},
    {"mistral", "MistralForCausalLM", build_mistral},
    {"mixtral", "MixtralForCausalLM", build_mistral},
    {"qwen2", "Qwen2ForCausalLM", build_qwen2},
    {"qwen3", "Qwen3ForCausalLM", build_qwen3},
    {"qwen3_moe", "Qwen3MoeForCausalLM", build_qwen3},
    {"qwen3_vl_text", "", build_qwen3},
    {"smollm3", "SmolLM3ForCausalLM", build_smollm3},
    {"phi3", "Phi3ForCausalLM", build_phi3},
    {"olmo2", "Olmo2ForCausalLM", build_olmo},
    {"olmo3", "Olmo3ForCausalLM", build_olmo},
    {"exaone4", "Exaone4ForCausalLM", build_exaone4},
    {"cohere2", "Cohere2ForCausalLM", build_cohere2},
    {"granite", "GraniteForCausalLM", build_granite},
    {"granite_swa", "GraniteSWAForCausalLM", build_granite},
    {"glm4_moe", "Glm4MoeForCausalLM", build_glm4_moe},
    {"minimax_m2", "MiniMaxM2ForCausalLM", build_minimax_m2},
    {"gemma2", "Gemma2ForCausalLM", build_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", build_gemma3},
    {"gemma4_text", "Gemma4ForCausalLM", build_gemma4},
    {"gpt_oss", "GptOssForCausalLM", build_gpt_oss},
    {"llama4_text", "Llama4ForCausalLM", build_llama4},
    {"mimo_v2_flash", "MiMoV2FlashForCausalLM", build_mimo_v2},
    {"deepseek_v2", "DeepseekV2ForCausalLM", build_deepseek},
    {"deepseek_v3", "DeepseekV3ForCausalLM", build_deepseek},
    {"kimi_k2", "", build_deepseek},
    {"deepseek_v32", "DeepseekV32ForCausalLM", build_deepseek},
    {"glm_moe_dsa", "GlmMoeDsaForCausalLM", build_deepseek},
    {"longcat_flash", "LongcatFlashForCausalLM", build_longcat},
    {"minicpm3", "MiniCPM3ForCausalLM", build_minicpm3},
    {"deepseek_v4", "DeepseekV4ForCausalLM", build_deepseek_v4},
    {"minimax_m3_vl_text", "MiniMaxM3SparseForCausalLM", build_minimax_m3},
    {"qwen3_next", "Qwen3NextForCausalLM", build_qwen3_next},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", build_qwen3_next},
    {"qwen3_5_moe_text", "", build_qwen3_next},
    {"olmo_hybrid", "OlmoHybridForCausalLM", build_olmo_hybrid},
    {"kimi_linear", "KimiLinearForCausalLM", build_kimi_linear},
    {"mamba2", "Mamba2ForCausalLM", build_mamba2},
    {"bamba", "BambaForCausalLM", build_bamba},
    {"falcon_h1", "FalconH1ForCausalLM", build_falcon_h1},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", build_granite_hybrid},
    {"nemotron_h", "NemotronHForCausalLM", build_nemotron_h},
    {"minimax", "MiniMaxForCausalLM", build_minimax},
    {"minimax_m1", "MiniMaxM1ForCausalLM", build_minimax},
    {"lfm2", "Lfm2ForCausalLM", build_lfm2},
    {"lfm2_moe", "Lfm2MoeForCausalLM", build_lfm2},
    {"zaya", "ZayaForCausalLM", build_zaya},
    {"bert", "BertModel", build_bert},
    {"whisper", "WhisperForConditionalGeneration", build_whisper},
    {"mllama_text_model", "", build_mllama},
    {"t5", "T5ForConditionalGeneration", build_t5},
};

/// Python writes Infinity, -Infinity and NaN bare, which JSON does not know. Outside texts they
/// become the largest numbers of their sign, or null.
std::string without_bare_infinities(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      out += c;
      if (c == '\\' && i + 1 < text.size())
        out += text[++i];
      else if (c == '"')
        in_text = false;
      continue;
    }
    constexpr std::string_view kInfinity = "Infinity";
    constexpr std::string_view kNan = "NaN";
    if (text.substr(i, kInfinity.size()) == kInfinity) {
      // A sign already written stays in front: no number is larger.
      out += "1.7976931348623157e308";
      i += kInfinity.size() - 1;
    } else if (text.substr(i, kNan.size()) == kNan) {
      out += "null";
      i += kNan.size() - 1;
    } else {
      in_text = c == '"';
      out += c;
    }
  }
  return out;
}

std::string first_architecture(const ConfigReader& reader) {
  const std::vector<std::string> names = reader.texts("architectures");
  return names.empty() ? std::string() : names[0];
}

/// What holds whatever the family: said here once, so that no reader of a ModelConfig has to.
void check_whole(const ConfigDraft& d) {
  const ModelConfig& c = d.config;
  if (c.vocab_size < 1) d.complain("config: vocab_size is missing or below 1");
  if (c.layers.empty()) d.complain("config: no layers");
  if (!(c.norm_eps >= 0.0)) d.complain("config: the epsilon of the norms is negative");
  for (const AttentionConfig& a : c.attention) {
    if (a.num_kv_heads < 1 || a.num_qo_heads % a.num_kv_heads != 0)
      d.complain("config: " + std::to_string(a.num_kv_heads) + " KV heads do not divide " +
                 std::to_string(a.num_qo_heads) + " heads");
    if (a.head_dim_qk < 1 || a.head_dim_vo < 1 || !(a.sm_scale > 0.0))
      d.complain("config: a layer kind has head dims " + std::to_string(a.head_dim_qk) + " and " +
                 std::to_string(a.head_dim_vo) + ", wanted at least 1");
    if (!(a.rope.theta > 0.0)) d.complain("config: a layer kind's rope theta is not positive");
  }
}

}  // namespace

const Family* find_family(std::string_view model_type, std::string_view architecture) {
  for (const Family& family : kFamilies)
    if (!model_type.empty() && family.model_type == model_type) return &family;
  for (const Family& family : kFamilies)
    if (!architecture.empty() && family.architecture == architecture) return &family;
  return nullptr;
}

std::string known_model_types() {
  std::string list;
  for (const Family& family : kFamilies) {
    if (!list.empty()) list += ", ";
    list += family.model_type;
  }
  return list;
}

Result<ModelConfig> parse_config(std::string_view text, const LinearFamilies* families) {
  json root = json::parse(without_bare_infinities(text), nullptr, false);
  if (root.is_discarded()) return invalid_argument("config: not JSON");
  if (!root.is_object()) return invalid_argument("config: wanted a JSON object");

  Status complaint;
  const ConfigReader top(root, "", complaint);
  std::optional<ConfigReader> inner;
  for (std::string_view key : {"text_config", "language_config"})
    if (!inner && top.is_object(key)) inner = top.section(key);
  const ConfigReader& reader = inner ? *inner : top;

  const std::string inner_architecture = first_architecture(reader);
  std::string architecture = first_architecture(top);
  if (architecture.empty()) architecture = inner_architecture;
  const std::string model_type = reader.text("model_type", top.text("model_type"));
  const LinearFamily* outside = families == nullptr ? nullptr : families->matching(reader);
  const Family* family = find_family(model_type, inner_architecture);
  if (!complaint.ok()) return complaint;
  if (family == nullptr && outside == nullptr)
    return invalid_argument("config: unknown model: model_type '" + model_type +
                            "', architecture '" + architecture +
                            "'; known model types: " + known_model_types());

  // A nested file keeps the checkpoint's type and token ids outside.
  if (inner) {
    json& part = root[top.is_object("text_config") ? "text_config" : "language_config"];
    for (const char* key : {"dtype", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id",
                            "tie_word_embeddings", "quantization_config"})
      if ((!part.contains(key) || part[key].is_null()) && root.contains(key)) part[key] = root[key];
  }
  ConfigDraft draft(reader, architecture,
                    outside != nullptr ? outside->name : std::string(family->model_type));
  draft.config.families = families;
  if (outside != nullptr)
    outside->build(draft);
  else
    family->build(draft);
  if (complaint.ok()) check_whole(draft);
  if (!complaint.ok()) return complaint;
  return std::move(draft.config);
}

Result<ModelConfig> load_config(const std::string& path, const LinearFamilies* families) {
  std::filesystem::path file(path);
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) file /= "config.json";
  std::ifstream stream(file, std::ios::binary);
  if (!stream)
    return invalid_argument("cannot read " + file.string() + ": " + std::strerror(errno));
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  Result<ModelConfig> config = parse_config(bytes.str(), families);
  if (config.ok()) return config;
  return Status(config.status().code(), file.string() + ": " + config.status().text());
}

}  // namespace attune::model
