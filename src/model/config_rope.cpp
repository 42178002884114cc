#include "model/config_rope.hpp"

#include <cmath>
#include <string>

namespace attune::model {
namespace {

RopeType rope_type(const ConfigReader& scaling) {
  const std::string word = scaling.text(scaling.first_of({"rope_type", "type"}), "default");
  // Multimodal rotary positions equal plain ones for text.
  if (word == "default" || word == "mrope") return RopeType::standard;
  if (word == "linear") return RopeType::linear;
  if (word == "dynamic") return RopeType::dynamic;
  if (word == "yarn") return RopeType::yarn;
  if (word == "llama3") return RopeType::llama3;
  if (word == "longrope" || word == "su") return RopeType::longrope;
  if (word == "proportional") return RopeType::proportional;
  scaling.complain(
      "config: rope type '" + word +
      "' is unknown, wanted default, linear, dynamic, yarn, llama3, longrope or proportional");
  return RopeType::standard;
}

void read_scaling(const ConfigReader& scaling, RopeConfig& rope) {
  rope.type = rope_type(scaling);
  rope.factor = scaling.number("factor", 1.0);
  rope.low_freq_factor = scaling.number("low_freq_factor", 1.0);
  rope.high_freq_factor = scaling.number("high_freq_factor", 4.0);
  rope.beta_fast = scaling.number("beta_fast", 32.0);
  rope.beta_slow = scaling.number("beta_slow", 1.0);
  rope.truncate = scaling.flag("truncate", true);
  rope.mscale = scaling.number("mscale", 0.0);
  rope.mscale_all_dim = scaling.number("mscale_all_dim", 0.0);
  if (scaling.has("attention_factor"))
    rope.attention_factor = scaling.number("attention_factor", 1.0);
  rope.original_context =
      scaling.integer("original_max_position_embeddings", rope.original_context);
  rope.short_factor = scaling.numbers("short_factor");
  rope.long_factor = scaling.numbers("long_factor");
  for (std::int64_t section : scaling.integers("mrope_section"))
    rope.mrope_sections.push_back(static_cast<int>(section));
}

/// The object of the new dialect that speaks of layers of `layer_word`.
std::optional<ConfigReader> parameters_of(const ConfigReader& text, std::string_view layer_word) {
  std::optional<ConfigReader> all = text.section("rope_parameters");
  if (!all || layer_word.empty() || !all->is_object(layer_word)) return all;
  return all->section(layer_word);
}

void check(const ConfigReader& text, const RopeConfig& rope, int head_dim) {
  if (rope.theta <= 0.0) text.complain("config: rope_theta is not positive");
  if (rope.rotary_dim > head_dim || rope.rotary_dim < 0 || rope.rotary_dim % 2 != 0)
    text.complain("config: " + std::to_string(rope.rotary_dim) + " rotary dims of a head of " +
                  std::to_string(head_dim) + ", wanted an even number not above it");
  if (rope.type != RopeType::standard && rope.factor <= 0.0)
    text.complain("config: the rope scaling's factor is not positive");
  if (rope.type == RopeType::longrope) {
    const auto wanted = static_cast<std::size_t>(rope.rotary_dim / 2);
    if (rope.short_factor.size() != wanted || rope.long_factor.size() != wanted)
      text.complain("config: longrope has " + std::to_string(rope.short_factor.size()) +
                    " short and " + std::to_string(rope.long_factor.size()) +
                    " long factors, wanted " + std::to_string(wanted) + " each");
  }
}

}  // namespace

RopeConfig parse_rope(const ConfigReader& text, int head_dim, double default_theta,
                      std::string_view layer_word) {
  RopeConfig rope;
  rope.type = RopeType::standard;
  rope.original_context = text.integer("original_max_position_embeddings", 0);
  double fraction = 1.0;
  int rotary_dim = 0;
  if (const std::optional<ConfigReader> parameters = parameters_of(text, layer_word)) {
    read_scaling(*parameters, rope);
    rope.theta = parameters->number("rope_theta", text.number("rope_theta", default_theta));
    fraction = parameters->number("partial_rotary_factor", 1.0);
  } else {
    if (const std::optional<ConfigReader> scaling = text.section("rope_scaling"))
      read_scaling(*scaling, rope);
    rope.theta = text.number("rope_theta", default_theta);
    fraction = text.number("partial_rotary_factor", 1.0);
    rotary_dim = text.size("rotary_dim", 0);
  }
  if (rope.original_context == 0)
    rope.original_context = text.integer("max_position_embeddings", 0);
  if (rotary_dim == 0) {
    if (!(fraction >= 0.0 && fraction <= 1.0)) {
      text.complain("config: partial_rotary_factor is not between 0 and 1");
      fraction = 1.0;
    }
    rotary_dim = static_cast<int>(fraction * head_dim);
  }
  rope.rotary_dim = rotary_dim + rotary_dim % 2;
  if (rotary_dim % 2 != 0) rope.frequency_dim = rotary_dim;
  if (rope.type == RopeType::proportional) {
    rope.turning_pairs = rotary_dim / 2;
    rope.rotary_dim = head_dim;
  }
  check(text, rope, head_dim);
  return rope;
}

}  // namespace attune::model
