#include "cli/models_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "model/attention_groups.hpp"
#include "model/config_parse.hpp"

namespace attune::cli {
namespace {

void add(std::string& list, const std::string& word) {
  if (!list.empty()) list += ", ";
  list += word;
}

std::string attention_options(const AttentionSpec& s) {
  std::string words;
  if (s.window_left >= 0) add(words, "window");
  if (s.attention_chunk > 0) add(words, "chunks");
  if (s.logits_soft_cap > 0) add(words, "soft cap");
  if (s.sinks) add(words, "sinks");
  if (s.alibi) add(words, "ALiBi");
  const bool by_heads = has_kv_heads(s.variant);
  if (by_heads && s.head_dim_qk != s.head_dim_vo) add(words, "unequal head dims");
  if (by_heads && s.num_qo_heads != s.num_kv_heads) add(words, "grouped heads");
  return words;
}

/// What happens around attention in the layers of a group.
std::string layer_options(const model::ModelConfig& config, const model::AttentionGroup& group) {
  std::string words;
  const auto once = [&](bool present, const char* word) {
    if (present && words.find(word) == std::string::npos) add(words, word);
  };
  for (int i : group.layers) {
    const model::LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
    if (const model::AttentionConfig* a = config.attention_of(i)) {
      once(a->rope.type == model::RopeType::none, "no RoPE");
      once(a->rope.type == model::RopeType::yarn, "YaRN");
      once(a->rope.type == model::RopeType::proportional, "proportional RoPE");
      once(a->rope.interleaved, "interleaved RoPE");
      once(a->qk_norm != model::QkNorm::none, "QK norm");
      once(a->qkv_bias, "biases");
      once(a->output_gate, "output gate");
      once(a->temperature_scale > 0, "query temperature");
      once(a->value_scale != 1.0, "value scale");
      once(a->v_norm, "V norm");
    }
    once(layer.feed_forward == model::FeedForwardKind::moe, "experts");
    once(layer.feed_forward == model::FeedForwardKind::dense_and_moe, "dense and experts");
  }
  once(config.norm_placement == model::NormPlacement::sandwich, "sandwich norms");
  once(config.norm_placement == model::NormPlacement::post, "norms after branches");
  once(config.norm_placement == model::NormPlacement::parallel, "parallel branches");
  once(config.final_logits_soft_cap > 0, "capped logits");
  once(config.per_layer_input_size > 0, "per-layer inputs");
  once(config.hyper_connections > 0, "hyper-connections");
  return words;
}

std::string accepted(const PhaseSelection* phase) {
  std::string names;
  if (phase != nullptr)
    for (const Consideration& c : phase->considered)
      if (c.accepted) add(names, c.name);
  return names.empty() ? "none" : names;
}

/// Who serves a group's two phases, the automatic choice first.
std::string servers(const GroupSelection& group) {
  const std::string prefill = accepted(group.of(Phase::prefill));
  const std::string decode = accepted(group.of(Phase::decode));
  return prefill == decode ? prefill : fmt::format("prefill {}; decode {}", prefill, decode);
}

/// A column of the table: the name and types of a device.
struct Column {
  const char* device;
  model::GroupDTypes dtypes;
};
constexpr Column kColumns[] = {{"cpu:avx512", {.compute = DType::f32, .kv = DType::bf16}},
                               {"cuda:sm90", {.compute = DType::bf16, .kv = DType::bf16}}};

Result<std::vector<std::string>> servers_on(const Column& column, const Registry& registry,
                                            const model::ModelConfig& config) {
  const Result<DeviceInfo> device = parse_device(column.device);
  if (!device.ok()) return device.status();
  ModelQuery query{.architecture = config.architecture, .groups = {}};
  for (const model::AttentionGroup& group : model::attention_groups(config, column.dtypes))
    query.groups.push_back(
        {.layers = group.layers, .kind = group.kind, .spec = group.spec, .encoder = group.encoder});
  std::vector<std::string> names;
  for (const GroupSelection& group : registry.explain(query, *device, {}).groups)
    names.push_back(servers(group));
  return names;
}

}  // namespace

Result<std::string> models_markdown(const std::string& models, const Registry& registry) {
  namespace fs = std::filesystem;
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(models, error))
    if (fs::exists(entry.path() / "config.json", error)) folders.push_back(entry.path());
  if (folders.empty()) return invalid_argument(models + " holds no folder with a config.json");
  std::sort(folders.begin(), folders.end());

  std::string out =
      "<!-- Written by `attune tables --write docs --models tests/golden/models`; do not edit. "
      "-->\n"
      "# Models\n\n"
      "The families that the golden models prove (`attune verify --golden tests/golden/models`): "
      "logits and greedy tokens through\nprefill, chunked prefill and paged decode. The last two "
      "columns name every backend that serves the layers on a CPU with AVX-512\nand on a Hopper "
      "card, the automatic choice first. Golden models are narrow (heads of 16, latents of 24 + 8 "
      "columns); `attune explain`\ntells who serves a model's real widths.\n\n"
      "| family | layers | attention options | around it | CPU | CUDA SM 9.0 |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const fs::path& folder : folders) {
    const Result<model::ModelConfig> config = model::load_config(folder.string());
    if (!config.ok()) return config.status();
    std::vector<std::vector<std::string>> columns;
    for (const Column& column : kColumns) {
      auto names = servers_on(column, registry, *config);
      if (!names.ok()) return names.status();
      columns.push_back(std::move(*names));
    }
    const auto groups = model::attention_groups(*config, kColumns[0].dtypes);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      out += fmt::format("| {} | {} | {} | {} |", g == 0 ? folder.filename().string() : "",
                         groups[g].kind, attention_options(groups[g].spec),
                         layer_options(*config, groups[g]));
      for (const std::vector<std::string>& column : columns)
        out += fmt::format(" {} |", g < column.size() ? column[g] : "");
      out += "\n";
    }
  }
  return out;
}

}  // namespace attune::cli
