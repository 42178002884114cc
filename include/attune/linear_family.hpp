// A family of linear layers that a plugin describes beside its backend (layer attention): a record
// of data and two functions. `attune` then runs models of that family: it reads config.json and the
// weights, keeps a state for each request, and multiplies by the projections around the backend:
//
//   in = W x, for each projection W that is named below;  y = backend(in, states);  out = W_output y
//
//   constexpr LinearFamilyRecord kFamilies[] = {{.name = "average", .backend = "average",
//                                                .matches = &matches, .describe = &describe}};
//   constexpr PluginEntry kEntry{.name = "average", .backends = …, .families = kFamilies,
//                                .num_families = 1};
//   attune generate --plugin ./libaverage.so --model folder-whose-config-matches …
//
// tests/runtime/plugins/average.cpp is a whole one. What a record cannot express, the backend may do
// between its inputs and o. Records and their texts live as long as the process: a plugin is never
// closed. Its functions throw nothing; what they describe is checked, and a refusal names the family.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <attune/spec.hpp>

namespace attune {

/// The part of a config.json that describes the language model, for reading. A key that is absent
/// gives the fallback or an empty value; a key of another type makes the host refuse the file.
class FamilyConfig {
 public:
  virtual ~FamilyConfig() = default;
  [[nodiscard]] virtual bool has(std::string_view key) const = 0;
  [[nodiscard]] virtual std::string text(std::string_view key) const = 0;  ///< "" where absent
  [[nodiscard]] virtual std::int64_t integer(std::string_view key, std::int64_t fallback) const = 0;
  [[nodiscard]] virtual double number(std::string_view key, double fallback) const = 0;
  [[nodiscard]] virtual std::vector<double> numbers(std::string_view key) const = 0;
  [[nodiscard]] virtual std::vector<std::string> texts(std::string_view key) const = 0;
};

/// Every layer of the family in one model. Names are those of the file behind "model.layers.N.",
/// without ".weight" (and ".bias", which is added where the file has one); an empty one is absent.
struct LinearFamilyLayers {
  /// Whose LinearCall the backend speaks (<attune/linear_state.hpp>), and with it the state: fp32
  /// [num_v_heads, head_dim_v, head_dim_k], and the convolution's last conv_kernel - 1 inputs.
  Variant variant = Variant::lightning;
  int num_k_heads = 0;
  int num_v_heads = 0;
  int head_dim_k = 0;
  int head_dim_v = 0;
  int conv_kernel = 0;  ///< 0 = no convolution; short_conv: over conv_dim channels
  int conv_dim = 0;     ///< 0 = those of q, k and v

  // Projections of the layer's input, [rows, hidden] with as many rows as the LinearCall's member
  // has columns.
  std::string conv_input{};  ///< conv_dim
  std::string q{};           ///< num_k_heads * head_dim_k, and so k
  std::string k{};
  std::string v{};     ///< num_v_heads * head_dim_v
  std::string gate{};  ///< num_v_heads; kda: num_v_heads * head_dim_k
  std::string beta{};  ///< num_v_heads
  /// Of o: [hidden, num_v_heads * head_dim_v], or of conv_dim columns.
  std::string output{};

  // Tensors that LinearCall hands on as they are, in fp32. These names get no ".weight".
  std::string conv_weight{};    ///< [conv_dim, conv_kernel] numbers
  std::string conv_bias{};      ///< [conv_dim]
  std::string a_log{};          ///< [num_v_heads]
  std::string dt_bias{};        ///< [num_v_heads], kda: by key channel
  std::string d_skip{};         ///< [num_v_heads]
  std::vector<float> slopes{};  ///< lightning: [num_v_heads]

  // Constants of the call (LinearCall says what they mean).
  float beta_scale = 1.0f;        ///< 0 or more
  float gate_lower_bound = 0.0f;  ///< kda; 0 or below
  float dt_min = 0.0f;            ///< mamba2: 0 <= dt_min <= dt_max
  float dt_max = 3.4e38f;

  /// Layers that are the family's; empty = all. The others are softmax attention by the
  /// common keys and names (Llama's).
  std::vector<int> layers{};
  bool feed_forward = true;  ///< a gated one behind every mixer, by the common keys and names
};

/// What PluginEntry::families lists.
struct LinearFamilyRecord {
  std::string_view name;     ///< the word that `explain` prints as the layers' kind; unique
  std::string_view backend;  ///< serves its layers unless the user names another
  /// Whether a config.json is this family's; asked before the families in tree.
  bool (*matches)(const FamilyConfig& config) = nullptr;
  /// Called for files that match.
  LinearFamilyLayers (*describe)(const FamilyConfig& config) = nullptr;
};

}  // namespace attune
