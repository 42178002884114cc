// Model x device x options -> choice, over the public configs: tests/data/selection_table.txt says
// what is expected.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include <attune/registry.hpp>

#include "model/attention_groups.hpp"
#include "model/config_parse.hpp"

namespace attune::model {
namespace {

struct Line {
  int number = 0;
  std::string model;
  std::string device;
  std::string options;
  std::string wanted;
  [[nodiscard]] std::string text() const {
    return model + " | " + device + " | " + options + " | " + wanted;
  }
};

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<Line> read_table() {
  std::ifstream stream(std::string(ATTUNE_SOURCE_DIR) + "/tests/data/selection_table.txt");
  std::vector<Line> lines;
  std::string raw;
  for (int number = 1; std::getline(stream, raw); ++number) {
    if (raw.empty() || raw[0] == '#') continue;
    std::istringstream fields(raw);
    Line line{.number = number, .model = {}, .device = {}, .options = {}, .wanted = {}};
    for (std::string* field : {&line.model, &line.device, &line.options, &line.wanted}) {
      std::getline(fields, *field, '|');
      *field = trimmed(*field);
    }
    lines.push_back(line);
  }
  return lines;
}

SelectionOptions parse_options(const std::string& text) {
  SelectionOptions o{.assume_built = true};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "name") o.prefill = o.decode = value;
    if (key == "prefill") o.prefill = value;
    if (key == "decode") o.decode = value;
    if (key == "page") o.page_size = std::stoi(value);
    if (key == "kv") o.kv_dtype = parse_dtype(value);
    if (key == "topk") o.speculative_topk = std::stoi(value);
    if (key == "no_prefix_cache") o.prefix_cache = false;
    if (key == "deterministic") o.required = Feature::deterministic;
  }
  return o;
}

/// The layers that the table speaks of: softmax attention of the decoder, or the encoder where that
/// is all.
std::vector<const GroupSelection*> spoken_of(const Selection& selection) {
  std::vector<const GroupSelection*> groups;
  for (const GroupSelection& g : selection.groups) {
    const AttentionSpec& s = g.group.spec;
    const bool companion = is_linear(s.variant) || s.variant == Variant::minimax_sparse;
    if (!companion && !g.group.encoder && s.kind != AttentionKind::cross) groups.push_back(&g);
  }
  return groups;
}

std::string answer(const GroupSelection& g) {
  const PhaseSelection* prefill = g.of(Phase::prefill);
  const PhaseSelection* decode = g.of(Phase::decode);
  std::string names = prefill->backend;
  if (decode != nullptr && decode->backend != prefill->backend) names += "+" + decode->backend;
  return names + "/" + std::to_string(g.page_size);
}

void check(const Line& line, const Selection& selection) {
  const auto groups = spoken_of(selection);
  ASSERT_FALSE(groups.empty()) << selection.status.text();
  if (line.wanted.starts_with("refused ")) {
    const std::string rule = line.wanted.substr(8);
    EXPECT_EQ(selection.status.code(), StatusCode::unsupported);
    const auto& refusals = selection.status.refusals();
    EXPECT_TRUE(std::any_of(refusals.begin(), refusals.end(),
                            [&](const Refusal& r) { return r.rule == rule; }))
        << "refusals: " << selection.status.text()
        << (refusals.empty() ? "" : " / " + refusals[0].backend + " " + refusals[0].rule);
    return;
  }
  if (line.wanted.starts_with("not ")) {
    const std::string name = line.wanted.substr(4);
    EXPECT_TRUE(std::any_of(selection.groups.begin(), selection.groups.end(),
                            [&](const GroupSelection& g) {
                              return !is_linear(g.group.spec.variant) &&
                                     !answer(g).starts_with(name + "/");
                            }))
        << answer(*groups[0]);
    return;
  }
  for (const GroupSelection* g : groups) EXPECT_EQ(answer(*g), line.wanted) << g->group.kind;
}

TEST(SelectionTable, EveryLineHolds) {
  const Result<Registry> registry = Registry::open({});
  ASSERT_TRUE(registry.ok());
  const std::vector<Line> lines = read_table();
  ASSERT_GT(lines.size(), 250u);
  std::map<std::string, ModelConfig> configs;
  for (const Line& line : lines) {
    SCOPED_TRACE(line.text());
    if (!configs.contains(line.model)) {
      const Result<ModelConfig> config = load_config(std::string(ATTUNE_SOURCE_DIR) +
                                                     "/tests/data/configs/" + line.model + ".json");
      ASSERT_TRUE(config.ok()) << config.status().text();
      configs[line.model] = *config;
    }
    const ModelConfig& config = configs[line.model];
    const Result<DeviceInfo> device = parse_device(line.device);
    ASSERT_TRUE(device.ok()) << device.status().text();
    const ModelQuery query{config.architecture,
                           attention_groups(config, auto_dtypes(config, *device))};
    check(line, registry->explain(query, *device, parse_options(line.options)));
  }
}

}  // namespace
}  // namespace attune::model
