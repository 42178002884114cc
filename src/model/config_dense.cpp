// Families of plain decoder layers.
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/join.hpp"
#include "model/config_draft.hpp"

namespace attune::model {
namespace {

/// sliding_window on every layer, unless the file switches it off or it covers the whole context.
bool slides_everywhere(const ConfigDraft& d) {
  const std::int64_t window = d.text.integer("sliding_window", 0);
  return window > 0 && d.text.flag("use_sliding_window", true) && window < d.config.context_length;
}

void fill_full_or_sliding(ConfigDraft& d, LayerWord missing) {
  d.fill(d.layer_words([&](int) { return missing; }), [&](int, LayerWord word) {
    return word == LayerWord::sliding ? d.windowed(d.attention) : d.attention;
  });
}

}  // namespace

void build_llama(ConfigDraft& d) {
  d.read_common();
  d.fill_uniform();
}

void build_mistral(ConfigDraft& d) {
  d.read_common();
  fill_full_or_sliding(d, slides_everywhere(d) ? LayerWord::sliding : LayerWord::full);
  d.read_moe();
  d.config.moe.normalize_topk = true;  // Mixtral renormalises over the chosen experts
}

void build_qwen2(ConfigDraft& d) {
  d.read_common();
  d.attention.qkv_bias = true;
  d.attention.o_bias = false;
  if (const auto chunks = d.text.section("dual_chunk_attention_config")) {
    d.attention.kind = AttentionLayerKind::dual_chunk;
    DualChunkConfig& dual = d.attention.dual_chunk;
    dual = {.chunk_size = chunks->integer("chunk_size", 0),
            .local_size = chunks->integer("local_size", 1024),
            .original_context = chunks->integer("original_max_position_embeddings", 0)};
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // positions' type
    if (dual.local_size < 0 || dual.chunk_size <= dual.local_size || dual.chunk_size > kMost) {
      d.complain(
          base::join("config: dual_chunk_attention_config wants 0 <= local_size < "
                     "chunk_size < 2^31, has ",
                     dual.local_size, " and ", dual.chunk_size));
      dual = {.chunk_size = 1};
    }
  }
  // use_sliding_window false is the rule; where true, the first max_window_layers stay full.
  const bool slides =
      d.text.flag("use_sliding_window", false) && d.text.integer("sliding_window", 0) > 0;
  const int full_first = d.text.size("max_window_layers", 0);
  d.fill(d.layer_words([&](int i) {
    return slides && i >= full_first ? LayerWord::sliding : LayerWord::full;
  }),
         [&](int, LayerWord word) {
           return word == LayerWord::sliding ? d.windowed(d.attention) : d.attention;
         });
}

void build_qwen3(ConfigDraft& d) {
  d.read_common();
  d.attention.qk_norm = QkNorm::per_head;
  d.fill(d.layer_words([](int) { return LayerWord::full; }), [&](int, LayerWord word) {
    return word == LayerWord::sliding ? d.windowed(d.attention) : d.attention;
  });
  d.read_moe();
}

void build_smollm3(ConfigDraft& d) {
  d.read_common(2000000.0);
  AttentionConfig unrotated = d.attention;
  unrotated.rope = {};
  const std::vector<std::int64_t> rotated = d.text.integers("no_rope_layers");  // 1 = has RoPE
  const int interval = std::max(1, d.text.size("no_rope_layer_interval", 4));
  d.fill(d.layer_words([](int) { return LayerWord::full; }), [&](int i, LayerWord word) {
    const auto n = static_cast<std::size_t>(i);
    const bool rope =
        rotated.empty() ? (i + 1) % interval != 0 : n < rotated.size() && rotated[n] != 0;
    const AttentionConfig& base = rope ? d.attention : unrotated;
    return word == LayerWord::sliding ? d.windowed(base) : base;
  });
}

void build_phi3(ConfigDraft& d) {
  d.read_common();
  fill_full_or_sliding(d, slides_everywhere(d) ? LayerWord::sliding : LayerWord::full);
}

void build_olmo(ConfigDraft& d) {
  d.read_common(500000.0);
  d.config.norm_placement = NormPlacement::post;
  d.attention.qk_norm = QkNorm::per_layer;
  const bool slides = d.text.has("sliding_window");
  d.fill(d.layer_words([&](int i) {
    return slides && (i + 1) % 4 != 0 ? LayerWord::sliding : LayerWord::full;
  }),
         [&](int, LayerWord word) {
           if (word != LayerWord::sliding) {
             AttentionConfig full = d.attention;
             full.rope = parse_rope_of(d, "full_attention", 500000.0);
             return full;
           }
           AttentionConfig sliding = d.windowed(d.attention);
           // Older files scale only the full layers.
           sliding.rope = parse_rope_of(d, "sliding_attention", 500000.0);
           if (!d.text.has("rope_parameters")) sliding.rope = unscaled(sliding.rope);
           return sliding;
         });
}

void build_exaone4(ConfigDraft& d) {
  d.read_common();
  d.config.norm_placement = NormPlacement::post;
  d.attention.qk_norm = QkNorm::per_head;
  AttentionConfig full = d.attention;
  const bool hybrid = d.text.has("sliding_window");
  if (hybrid) full.rope = {};  // global layers of the hybrid model have no positions
  const bool letters = d.text.is_text("sliding_window_pattern");
  const std::string pattern = letters ? d.text.text("sliding_window_pattern") : "";
  const int every = letters ? 0 : d.text.size("sliding_window_pattern", 4);
  d.fill(d.layer_words([&](int i) {
    if (!hybrid) return LayerWord::full;
    if (!pattern.empty())
      return i + 1 == d.num_layers || pattern[static_cast<std::size_t>(i) % pattern.size()] != 'L'
                 ? LayerWord::full
                 : LayerWord::sliding;
    return every == 0 || (i + 1) % every == 0 ? LayerWord::full : LayerWord::sliding;
  }),
         [&](int, LayerWord word) {
           return word == LayerWord::sliding ? d.windowed(d.attention) : full;
         });
}

void build_cohere2(ConfigDraft& d) {
  d.config.tie_embeddings = true;
  d.read_common();
  d.config.norm = NormKind::layer_norm;
  d.config.norm_placement = NormPlacement::parallel;
  d.config.logits_multiplier = d.text.number("logit_scale", 0.0625);
  d.attention.rope.interleaved = true;
  AttentionConfig full = d.attention;
  full.rope = {};
  const int every = std::max(1, d.text.size("sliding_window_pattern", 4));
  d.fill(d.layer_words(
             [&](int i) { return (i + 1) % every == 0 ? LayerWord::full : LayerWord::sliding; }),
         [&](int, LayerWord word) {
           return word == LayerWord::sliding ? d.windowed(d.attention) : full;
         });
}

void build_granite(ConfigDraft& d) {
  d.read_common();
  read_granite_multipliers(d);
  const bool swa = d.config.model_type == "granite_swa";
  d.attention.sinks = swa;
  const std::vector<double> thetas = d.text.numbers("layer_rope_theta");  // 0 = no positions
  d.fill(d.layer_words(
             [&](int i) { return swa && i % 4 != 0 ? LayerWord::sliding : LayerWord::full; }),
         [&](int i, LayerWord word) {
           AttentionConfig a = word == LayerWord::sliding ? d.windowed(d.attention) : d.attention;
           const auto n = static_cast<std::size_t>(i);
           if (n < thetas.size()) {
             if (thetas[n] == 0.0)
               a.rope = {};
             else
               a.rope.theta = thetas[n];
           }
           return a;
         });
}

void build_glm4_moe(ConfigDraft& d) {
  d.read_common(1000000.0);
  d.attention.o_bias = false;
  if (d.text.flag("use_qk_norm", false)) d.attention.qk_norm = QkNorm::per_head;
  if (!d.text.has("rope_parameters") && !d.text.has("partial_rotary_factor"))
    d.attention.rope.rotary_dim = d.attention.head_dim_qk / 2;
  d.fill_uniform();
  d.read_moe();
  d.config.moe.score = RouterScore::sigmoid;
  d.config.moe.selection_bias = true;
}

void build_minimax_m2(ConfigDraft& d) {
  d.read_common(5000000.0);
  d.attention.qk_norm = QkNorm::per_layer;
  d.fill_uniform();
  d.read_moe();
  d.config.moe.score = RouterScore::sigmoid;
  d.config.moe.normalize_topk = true;
  d.config.moe.selection_bias = true;
}

}  // namespace attune::model
