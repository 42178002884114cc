// The oracle is held to numpy: tests/golden/attention.txt.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "backends/reference_problem.hpp"

namespace attune::backends::reference {
namespace {

using test::Answer;
using test::Placement;
using test::Problem;
using test::solve;

struct Golden {
  std::string name;
  Problem problem;
  std::vector<double> o, lse;
};

std::vector<double> rest_of(std::istringstream& line) {
  std::vector<double> values;
  std::string word;
  while (line >> word) values.push_back(std::strtod(word.c_str(), nullptr));
  return values;
}

std::vector<float> floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

std::vector<Golden> read_golden() {
  std::ifstream file(ATTUNE_SOURCE_DIR "/tests/golden/attention.txt");
  std::vector<Golden> all;
  std::string text;
  while (std::getline(file, text)) {
    std::istringstream line(text);
    std::string key;
    line >> key;
    if (key == "case") {
      all.emplace_back();
      line >> all.back().name;
      continue;
    }
    if (key == "#" || key == "end") continue;
    Golden& g = all.back();
    AttentionSpec& spec = g.problem.spec;
    if (key == "dtype") {
      std::string word;
      line >> word;
      spec.kv_dtype = *parse_dtype(word);
      continue;
    }
    const std::vector<double> values = rest_of(line);
    const double x = values.empty() ? 0.0 : values[0];
    const auto whole = static_cast<int>(x);
    const std::map<std::string, std::function<void()>> setters = {
        {"qo_len", [&] { g.problem.qo_len = whole; }},
        {"kv_len", [&] { g.problem.kv_len = whole; }},
        {"heads", [&] { spec.num_qo_heads = whole; }},
        {"kv_heads", [&] { spec.num_kv_heads = whole; }},
        {"dqk", [&] { spec.head_dim_qk = whole; }},
        {"dvo", [&] { spec.head_dim_vo = whole; }},
        {"sm_scale", [&] { spec.sm_scale = static_cast<float>(x); }},
        {"q_scale", [&] { g.problem.q_scale = static_cast<float>(x); }},
        {"k_scale", [&] { g.problem.k_scale = static_cast<float>(x); }},
        {"v_scale", [&] { g.problem.v_scale = static_cast<float>(x); }},
        {"cap", [&] { spec.logits_soft_cap = static_cast<float>(x); }},
        {"causal", [&] { spec.causal = whole != 0; }},
        {"left", [&] { spec.window_left = whole; }},
        {"right", [&] { spec.window_right = whole; }},
        {"chunk", [&] { spec.attention_chunk = whole; }},
        {"xai", [&] { spec.xai_temperature_len = whole; }},
        {"offset", [&] { g.problem.offset = whole; }},
        {"mla",
         [&] {
           if (whole == 0) return;
           spec.variant = Variant::mla;
           spec.kv_lora_rank = spec.head_dim_vo;
           spec.qk_rope_head_dim = spec.head_dim_qk - spec.head_dim_vo;
         }},
        {"slopes", [&] { g.problem.slopes = floats(values); }},
        {"sinks", [&] { g.problem.sinks = floats(values); }},
        {"k_scale_per_head", [&] { g.problem.k_scales = floats(values); }},
        {"v_scale_per_head", [&] { g.problem.v_scales = floats(values); }},
        {"mask", [&] { g.problem.mask.assign(values.begin(), values.end()); }},
        {"q", [&] { g.problem.q = values; }},
        {"k", [&] { g.problem.k = values; }},
        {"v", [&] { g.problem.v = values; }},
        {"o", [&] { g.o = values; }},
        {"lse", [&] { g.lse = values; }},
    };
    setters.at(key)();
  }
  return all;
}

/// o and lse are fp32: half a step of that, relative, and the last digit of the file.
void expect_close(float have, double want, const std::string& where) {
  if (std::isinf(want)) {
    EXPECT_EQ(have, static_cast<float>(want)) << where;
    return;
  }
  EXPECT_NEAR(have, want, 2e-7 + 2e-7 * std::fabs(want)) << where;
}

TEST(Reference, AgreesWithNumpyInEveryPlacement) {
  const std::vector<Golden> all = read_golden();
  ASSERT_GT(all.size(), 35u);
  for (const Golden& g : all) {
    const bool mla = g.problem.spec.variant == Variant::mla;
    std::vector<Placement> placements = {{.source = KvSource::ragged}};
    for (const std::int32_t page_size : {1, 2, 3, 5, 16, 256, 544}) {
      placements.push_back({.page_size = page_size});
      placements.push_back({.layout = KvLayout::hnd, .page_size = page_size});
    }
    for (Placement place : placements) {
      if (mla && place.layout == KvLayout::hnd) continue;
      if (mla) place.layout = KvLayout::mla_latent;
      const Answer answer = solve(g.problem, place);
      const std::string where = g.name + ", page " + std::to_string(place.page_size) +
                                (place.source == KvSource::ragged ? ", ragged" : ", paged");
      ASSERT_EQ(answer.o.size(), g.o.size()) << where;
      for (std::size_t i = 0; i < g.o.size(); ++i) expect_close(answer.o[i], g.o[i], where);
      for (std::size_t i = 0; i < g.lse.size(); ++i) expect_close(answer.lse[i], g.lse[i], where);
    }
  }
}

}  // namespace
}  // namespace attune::backends::reference
