// A DeepSeek-V2 of random weights whose latents are as wide as real ones, for tests of what the
// narrow golden models cannot reach.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>

#include "support/random_checkpoint.hpp"

namespace attune::testing_support {

struct LatentWidths {
  int rank = 512;
  int rope = 64;
  int nope = 128;
  int value = 128;
};
inline constexpr LatentWidths kMiniCpm3Widths{.rank = 256, .rope = 32, .nope = 64, .value = 64};

inline void write_latent_checkpoint(const std::filesystem::path& folder, const LatentWidths& w) {
  constexpr int kHidden = 96;
  constexpr int kLayers = 2;
  constexpr int kHeads = 4;
  constexpr int kQueryRank = 48;
  constexpr int kIntermediate = 128;
  constexpr int kVocab = 96;

  RandomCheckpoint c(11);
  c.matrix("model.embed_tokens.weight", kVocab, kHidden, 1.0);
  c.matrix("lm_head.weight", kVocab, kHidden);
  c.ones("model.norm.weight", kHidden);
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const std::string attention = layer + "self_attn.";
    c.matrix(attention + "q_a_proj.weight", kQueryRank, kHidden);
    c.ones(attention + "q_a_layernorm.weight", kQueryRank);
    c.matrix(attention + "q_b_proj.weight", kHeads * (w.nope + w.rope), kQueryRank);
    c.matrix(attention + "kv_a_proj_with_mqa.weight", w.rank + w.rope, kHidden);
    c.ones(attention + "kv_a_layernorm.weight", w.rank);
    c.matrix(attention + "kv_b_proj.weight", kHeads * (w.nope + w.value), w.rank);
    c.matrix(attention + "o_proj.weight", kHidden, kHeads * w.value);
    c.matrix(layer + "mlp.gate_proj.weight", kIntermediate, kHidden);
    c.matrix(layer + "mlp.up_proj.weight", kIntermediate, kHidden);
    c.matrix(layer + "mlp.down_proj.weight", kHidden, kIntermediate);
    c.ones(layer + "input_layernorm.weight", kHidden);
    c.ones(layer + "post_attention_layernorm.weight", kHidden);
  }
  std::ostringstream config;
  config << R"({"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"],)"
         << R"("hidden_act": "silu", "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16",)"
         << R"("max_position_embeddings": 512, "tie_word_embeddings": false, "eos_token_id": 2,)"
         << "\"hidden_size\": " << kHidden << ", \"intermediate_size\": " << kIntermediate
         << ", \"num_hidden_layers\": " << kLayers << ", \"first_k_dense_replace\": " << kLayers
         << ", \"num_attention_heads\": " << kHeads << ", \"num_key_value_heads\": " << kHeads
         << ", \"q_lora_rank\": " << kQueryRank << ", \"kv_lora_rank\": " << w.rank
         << ", \"qk_rope_head_dim\": " << w.rope << ", \"qk_nope_head_dim\": " << w.nope
         << ", \"v_head_dim\": " << w.value << ", \"vocab_size\": " << kVocab << "}";
  c.write(folder, config.str());
}

}  // namespace attune::testing_support
