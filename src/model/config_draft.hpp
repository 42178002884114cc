// A ModelConfig in the making, and the verbs by which each family of models fills it (layer model;
// only the config parser includes this).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"
#include "model/config_reader.hpp"

namespace attune::model {

/// What a layer is, after the dialects are undone.
enum class LayerWord : std::uint8_t {
  full,
  sliding,
  chunked,
  linear,
  conv,
  sparse,      ///< DSA, MiniMax-M3
  compressed,  ///< DeepSeek-V4, behind an indexer
  heavily_compressed,
  hybrid,  ///< two mixers in one layer
  hybrid_sliding,
  mlp,
  moe,
};

class ConfigDraft {
 public:
  ConfigDraft(const ConfigReader& text, std::string architecture, std::string model_type);

  const ConfigReader& text;  ///< the part of the file that describes the language model
  ModelConfig config;
  AttentionConfig attention;  ///< heads, dims, scale and biases by the field's common keys
  int num_layers = 0;
  int num_layers_if_absent = 0;  ///< of a pattern, where the file does not count

  /// Reads the fields almost every family has; `default_theta` where the file is silent.
  void read_common(double default_theta = 10000.0);
  /// The same for a model without softmax attention.
  void read_without_attention();

  /// layer_types and its relatives; `missing` names the word of layer i where the file has no list.
  [[nodiscard]] std::vector<LayerWord> layer_words(
      const std::function<LayerWord(int)>& missing) const;

  /// Indices into config.attention and config.linear; equal entries are kept once.
  int add(const AttentionConfig& attention);
  int add(const LinearConfig& linear);

  /// Layers that all attend alike.
  void fill_uniform();
  /// One layer a word, by `attention_of`; linear words use `linear`.
  void fill(const std::vector<LayerWord>& words,
            const std::function<AttentionConfig(int layer, LayerWord)>& attention_of,
            const LinearConfig* linear = nullptr);

  /// `attention` with the file's sliding window.
  [[nodiscard]] AttentionConfig windowed(AttentionConfig attention) const;

  /// The experts by the field's common keys, and which layers have them (first_k_dense_replace,
  /// moe_layer_freq, mlp_layer_types, decoder_sparse_step, …). Called after the layers are filled.
  void read_moe();
  void mark_moe_layers();

  /// A required number of layers; absurd ones are refused before anything is sized by them.
  [[nodiscard]] int layer_count(std::string_view key) const;

  /// A product of sizes as an int, or a complaint that names it.
  [[nodiscard]] int narrow(std::int64_t n, std::string_view what) const;

  void complain(std::string why) const { text.complain(std::move(why)); }
};

/// The draft's rope for layers of `layer_word`.
[[nodiscard]] RopeConfig parse_rope_of(const ConfigDraft& draft, std::string_view layer_word,
                                       double default_theta);
/// `rope` without its scaling.
[[nodiscard]] RopeConfig unscaled(RopeConfig rope);
/// Granite's factors on embeddings, branches, logits and attention.
void read_granite_multipliers(ConfigDraft& draft);

/// The latent projections of DeepSeek's dialect, into draft.attention.
void read_mla(ConfigDraft& draft);

/// Fills `draft` for one family; complaints go to its reader.
using FamilyBuilder = void (*)(ConfigDraft& draft);

struct Family {
  std::string_view model_type;
  std::string_view architecture;  ///< taken where the file names no known model_type; may be empty
  FamilyBuilder build;
};

/// The families of one file each; nullptr where `model_type` and `architecture` are unknown.
[[nodiscard]] const Family* find_family(std::string_view model_type, std::string_view architecture);
/// For messages.
[[nodiscard]] std::string known_model_types();

// config_dense.cpp
void build_llama(ConfigDraft& draft);
void build_mistral(ConfigDraft& draft);
void build_qwen2(ConfigDraft& draft);
void build_qwen3(ConfigDraft& draft);
void build_smollm3(ConfigDraft& draft);
void build_phi3(ConfigDraft& draft);
void build_olmo(ConfigDraft& draft);
void build_exaone4(ConfigDraft& draft);
void build_cohere2(ConfigDraft& draft);
void build_granite(ConfigDraft& draft);
void build_glm4_moe(ConfigDraft& draft);
void build_minimax_m2(ConfigDraft& draft);
// config_window.cpp
void build_gemma2(ConfigDraft& draft);
void build_gemma3(ConfigDraft& draft);
void build_gemma4(ConfigDraft& draft);
void build_gpt_oss(ConfigDraft& draft);
void build_llama4(ConfigDraft& draft);
void build_mimo_v2(ConfigDraft& draft);
// config_mla.cpp
void build_deepseek(ConfigDraft& draft);
void build_longcat(ConfigDraft& draft);
void build_minicpm3(ConfigDraft& draft);
void build_deepseek_v4(ConfigDraft& draft);
void build_minimax_m3(ConfigDraft& draft);
// config_linear.cpp
void build_qwen3_next(ConfigDraft& draft);
void build_olmo_hybrid(ConfigDraft& draft);
void build_kimi_linear(ConfigDraft& draft);
void build_mamba2(ConfigDraft& draft);
void build_bamba(ConfigDraft& draft);
void build_falcon_h1(ConfigDraft& draft);
void build_granite_hybrid(ConfigDraft& draft);
void build_nemotron_h(ConfigDraft& draft);
void build_minimax(ConfigDraft& draft);
void build_lfm2(ConfigDraft& draft);
void build_zaya(ConfigDraft& draft);
// config_encoder.cpp
void build_bert(ConfigDraft& draft);
void build_whisper(ConfigDraft& draft);
void build_mllama(ConfigDraft& draft);
void build_t5(ConfigDraft& draft);

}  // namespace attune::model
