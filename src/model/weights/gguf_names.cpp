#include "model/weights/gguf_names.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace attune::model {
namespace {

using Renaming = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kArchitectures[] = {"llama", "mistral3", "smollm3", "qwen2",  "qwen2moe",
                                               "qwen3", "qwen3moe", "gemma",   "gemma2", "gemma3",
                                               "phi3",  "olmo2",    "granite"};

constexpr Renaming kOutside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};

// Within a layer. The norms before the feed-forward differ by family and come first.
constexpr Renaming kSandwichNorms[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                       {"post_attention_norm", "post_attention_layernorm"},
                                       {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr Renaming kMixtralExperts[] = {{"ffn_gate_inp", "block_sparse_moe.gate"}};
constexpr Renaming kPhi[] = {{"ffn_up", "mlp.gate_up_proj"}};
constexpr Renaming kInside[] = {{"attn_norm", "input_layernorm"},
                                {"attn_q", "self_attn.q_proj"},
                                {"attn_k", "self_attn.k_proj"},
                                {"attn_v", "self_attn.v_proj"},
                                {"attn_qkv", "self_attn.qkv_proj"},
                                {"attn_output", "self_attn.o_proj"},
                                {"attn_q_norm", "self_attn.q_norm"},
                                {"attn_k_norm", "self_attn.k_norm"},
                                {"ffn_norm", "post_attention_layernorm"},
                                {"ffn_gate", "mlp.gate_proj"},
                                {"ffn_up", "mlp.up_proj"},
                                {"ffn_down", "mlp.down_proj"},
                                {"ffn_gate_inp", "mlp.gate"},
                                {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                {"ffn_down_shexp", "mlp.shared_expert.down_proj"}};

constexpr Renaming kExperts[] = {
    {"ffn_gate_exps", "gate_proj"}, {"ffn_up_exps", "up_proj"}, {"ffn_down_exps", "down_proj"}};
constexpr Renaming kMixtralExpertMatrices[] = {
    {"ffn_gate_exps", "w1"}, {"ffn_up_exps", "w3"}, {"ffn_down_exps", "w2"}};

std::optional<std::string_view> renamed(std::span<const Renaming> table, std::string_view name) {
  for (const Renaming& r : table)
    if (r.first == name) return r.second;
  return std::nullopt;
}

/// blk.<layer>.<part>.<suffix>, or <part>.<suffix> with an empty layer.
struct Name {
  std::string_view layer;
  std::string_view part;
  std::string_view suffix;  ///< ".weight", ".bias"
};
Name split(std::string_view name) {
  Name n;
  if (name.starts_with("blk.")) {
    name.remove_prefix(4);
    const std::size_t dot = std::min(name.find('.'), name.size());
    n.layer = name.substr(0, dot);
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  const std::size_t dot = std::min(name.rfind('.'), name.size());
  n.part = name.substr(0, dot);
  n.suffix = name.substr(dot);
  return n;
}

bool is_mixtral(std::string_view architecture) { return architecture == "llama"; }

std::optional<std::string_view> renamed_inside(std::string_view architecture,
                                               std::string_view part) {
  std::span<const Renaming> own;
  if (architecture == "gemma2" || architecture == "gemma3" || architecture == "olmo2")
    own = kSandwichNorms;
  if (architecture == "phi3") own = kPhi;
  if (is_mixtral(architecture)) own = kMixtralExperts;
  const auto first = renamed(own, part);
  return first ? first : renamed(kInside, part);
}

}  // namespace

bool knows_gguf_architecture(std::string_view architecture) {
  return std::ranges::find(kArchitectures, architecture) != std::end(kArchitectures);
}

std::string gguf_architectures() {
  std::string list;
  for (std::string_view a : kArchitectures) list += (list.empty() ? "" : ", ") + std::string(a);
  return list;
}

std::string hugging_face_name(std::string_view architecture, std::string_view name) {
  const Name n = split(name);
  if (n.layer.empty()) {
    const auto outside = renamed(kOutside, n.part);
    return outside ? std::string(*outside).append(n.suffix) : std::string(name);
  }
  const auto inside = renamed_inside(architecture, n.part);
  if (!inside) return std::string(name);
  return "model.layers." + std::string(n.layer) + "." + std::string(*inside) +
         std::string(n.suffix);
}

std::optional<std::string> expert_name(std::string_view architecture, std::string_view name,
                                       std::int64_t expert) {
  const Name n = split(name);
  const bool mixtral = is_mixtral(architecture);
  const auto matrix = renamed(mixtral ? std::span<const Renaming>(kMixtralExpertMatrices)
                                      : std::span<const Renaming>(kExperts),
                              n.part);
  if (n.layer.empty() || !matrix) return std::nullopt;
  return "model.layers." + std::string(n.layer) +
         (mixtral ? ".block_sparse_moe.experts." : ".mlp.experts.") + std::to_string(expert) + "." +
         std::string(*matrix) + std::string(n.suffix);
}

}  // namespace attune::model
