// Every public config and every tiny one: the groups of layers that come out, against a list that
// was checked by hand with the published descriptions of the models.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/attention_groups.hpp"
#include "model/config_parse.hpp"

namespace attune::model {
namespace {

namespace fs = std::filesystem;

std::string ranges(const std::vector<int>& layers) {
  std::ostringstream out;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t j = i;
    while (j + 1 < layers.size() && layers[j + 1] == layers[j] + 1) ++j;
    out << (i == 0 ? "" : ",") << layers[i];
    if (j > i) out << "-" << layers[j];
    i = j + 1;
  }
  return out.str();
}

std::string line_of(const AttentionGroup& g) {
  const AttentionSpec& s = g.spec;
  std::ostringstream out;
  out << "  " << g.kind << " x" << g.layers.size() << " [" << ranges(g.layers) << "]";
  if (is_linear(s.variant)) {
    out << " heads " << s.linear_num_k_heads << "/" << s.linear_num_v_heads << " dims "
        << s.linear_head_dim_k << "/" << s.linear_head_dim_v << " conv " << s.conv_kernel << "x"
        << s.conv_dim;
    return out.str();
  }
  out << " heads " << s.num_qo_heads << "/" << s.num_kv_heads << " dims " << s.head_dim_qk << "/"
      << s.head_dim_vo << " scale " << s.sm_scale;
  if (s.logits_soft_cap > 0) out << " cap " << s.logits_soft_cap;
  if (s.window_left >= 0) out << " window_left " << s.window_left;
  if (s.attention_chunk > 0) out << " chunk " << s.attention_chunk;
  if (s.sinks) out << " sinks";
  if (s.relative_bias) out << " relative_bias";
  if (!s.causal) out << " bidirectional";
  return out.str();
}

std::string rendered() {
  const fs::path root = fs::path(ATTUNE_SOURCE_DIR) / "tests/data/configs";
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::ostringstream out;
  for (const fs::path& file : files) {
    out << fs::relative(file, root).string() << "\n";
    const Result<ModelConfig> config = load_config(file.string());
    if (!config.ok()) {
      out << "  " << config.status().text() << "\n";
      continue;
    }
    for (const AttentionGroup& group : attention_groups(
             *config,
             auto_dtypes(*config, DeviceInfo{.kind = DeviceKind::cuda, .name = {}, .arch = {}})))
      out << line_of(group) << "\n";
  }
  return out.str();
}

TEST(ConfigGroups, EveryFileGivesTheGroupsOfTheList) {
  const fs::path list = fs::path(ATTUNE_SOURCE_DIR) / "tests/data/config_groups.txt";
  std::ifstream stream(list);
  std::ostringstream wanted;
  wanted << stream.rdbuf();
  const std::string found = rendered();
  if (found != wanted.str()) {
    const fs::path out = fs::path(ATTUNE_BINARY_DIR) / "config_groups.txt";
    std::ofstream(out) << found;
    FAIL() << "differs from " << list << "; what was found is in " << out;
  }
}

}  // namespace
}  // namespace attune::model
