#include "model/described_family.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <attune/plugin.hpp>

#include "model/config_draft.hpp"
#include "model/described_mixer.hpp"
#include "registry/loader.hpp"

namespace attune::model {
namespace {

class ReaderConfig final : public FamilyConfig {
 public:
  explicit ReaderConfig(const ConfigReader& reader) : reader_(reader) {}
  [[nodiscard]] bool has(std::string_view key) const override { return reader_.has(key); }
  [[nodiscard]] std::string text(std::string_view key) const override { return reader_.text(key); }
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback) const override {
    return reader_.integer(key, fallback);
  }
  [[nodiscard]] double number(std::string_view key, double fallback) const override {
    return reader_.number(key, fallback);
  }
  [[nodiscard]] std::vector<double> numbers(std::string_view key) const override {
    return reader_.numbers(key);
  }
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const override {
    return reader_.texts(key);
  }

 private:
  const ConfigReader& reader_;
};

/// What no kernel could make sense of, found before memory is sized by it; empty = nothing.
std::string complaint_about(const LinearFamilyLayers& l) {
  constexpr int kMost = 1 << 24;
  const auto number = [](auto n) { return std::to_string(n); };
  for (const int size :
       {l.num_k_heads, l.num_v_heads, l.head_dim_k, l.head_dim_v, l.conv_dim, l.conv_kernel})
    if (size < 0 || size > kMost) return "a size of " + number(size);
  if (!is_linear(l.variant))
    return "layers of " + std::string(name(l.variant)) + ", which is softmax attention";
  if (l.output.empty()) return "no output projection";
  if (l.variant == Variant::short_conv)
    return l.conv_dim > 0 ? "" : "a short convolution of no channels";
  if (l.num_k_heads < 1 || l.num_v_heads < 1 || l.num_v_heads % l.num_k_heads != 0)
    return number(l.num_v_heads) + " value heads over " + number(l.num_k_heads) + " key heads";
  if (l.head_dim_k < 1 || l.head_dim_v < 1)
    return "a state of " + number(l.head_dim_v) + " x " + number(l.head_dim_k);
  if (!l.slopes.empty() && l.slopes.size() != static_cast<std::size_t>(l.num_v_heads))
    return number(l.slopes.size()) + " slopes for " + number(l.num_v_heads) + " value heads";
  constexpr float kMostNumber = std::numeric_limits<float>::max();
  if (!(l.beta_scale >= 0 && l.beta_scale <= kMostNumber))
    return "a beta scale of " + number(l.beta_scale);
  if (!(l.gate_lower_bound <= 0 && l.gate_lower_bound >= -kMostNumber))
    return "a lower bound of gates of " + number(l.gate_lower_bound);
  if (!(l.dt_min >= 0 && l.dt_min <= l.dt_max && l.dt_max <= kMostNumber))
    return "steps of " + number(l.dt_min) + " to " + number(l.dt_max);
  return "";
}

LinearConfig config_of(const ConfigDraft& d, std::string family,
                       std::shared_ptr<const LinearFamilyLayers> layers) {
  const LinearFamilyLayers& l = *layers;
  const std::int64_t channels =
      std::int64_t{2} * l.num_k_heads * l.head_dim_k + std::int64_t{l.num_v_heads} * l.head_dim_v;
  LinearConfig config{.family = std::move(family),
                      .variant = l.variant,
                      .num_k_heads = l.num_k_heads,
                      .num_v_heads = l.num_v_heads,
                      .head_dim_k = l.head_dim_k,
                      .head_dim_v = l.head_dim_v,
                      .conv_kernel = l.conv_kernel,
                      .conv_dim = l.conv_dim};
  if (config.conv_kernel > 0 && config.conv_dim == 0)
    config.conv_dim = d.narrow(channels, "the convolution's width");
  config.described = std::move(layers);
  return config;
}

void build(ConfigDraft& d, const LinearFamilyRecord& record) {
  auto layers = std::make_shared<const LinearFamilyLayers>(record.describe(ReaderConfig(d.text)));
  if (const std::string wrong = complaint_about(*layers); !wrong.empty())
    return d.complain("config: the family '" + std::string(record.name) + "' describes " + wrong);
  const std::vector<int>& own = layers->layers;
  own.empty() ? d.read_without_attention() : d.read_common();
  for (const int layer : own)
    if (layer < 0 || layer >= d.num_layers)
      d.complain("config: the family '" + std::string(record.name) + "' claims layer " +
                 std::to_string(layer) + " of " + std::to_string(d.num_layers));
  std::vector<LayerWord> words;
  for (int i = 0; i < d.num_layers; ++i) {
    const bool is_own = own.empty() || std::ranges::count(own, i) > 0;
    words.push_back(is_own ? LayerWord::linear : LayerWord::full);
  }
  if (own.empty()) d.config.positions = PositionKind::none;
  const LinearConfig linear = config_of(d, std::string(record.name), layers);
  d.fill(
      words, [&](int, LayerWord) { return d.attention; }, &linear);
  if (layers->feed_forward) return;
  for (LayerConfig& layer : d.config.layers) layer.feed_forward = FeedForwardKind::none;
}

}  // namespace

Status add_described(const LinearFamilyRecord& record, LinearFamilies& families) {
  if (record.matches == nullptr || record.describe == nullptr)
    return invalid_argument("the linear family '" + std::string(record.name) +
                            "' lacks its predicate or its description");
  return families.add(
      {.name = std::string(record.name),
       .backend = std::string(record.backend),
       .matches =
           [record](const ConfigReader& reader) { return record.matches(ReaderConfig(reader)); },
       .build = [record](ConfigDraft& draft) { build(draft, record); },
       .state = state_of_variant,
       .mixer = [](Loader& loader, int layer) -> std::unique_ptr<LayerPart> {
         return std::make_unique<DescribedMixer>(loader, layer);
       }});
}

Result<std::unique_ptr<LinearFamilies>> families_of_plugins(std::span<const std::string> paths) {
  auto families = std::make_unique<LinearFamilies>();
  for (const std::string& path : paths) {
    const Result<const PluginEntry*> plugin = registry::open_plugin(path);
    if (!plugin.ok()) return plugin.status();
    for (std::size_t i = 0; i < (*plugin)->num_families; ++i)
      if (Status s = add_described((*plugin)->families[i], *families); !s.ok())
        return Status(StatusCode::plugin_error, "plugin " + path + ": " + s.text());
  }
  return families;
}

}  // namespace attune::model
