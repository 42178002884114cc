// Encoders, encoder-decoders, and decoders that look at an encoder's output.
#include <algorithm>
#include <cmath>

#include "model/config_draft.hpp"

namespace attune::model {

void build_bert(ConfigDraft& d) {
  d.config.tie_embeddings = true;
  d.read_common();
  ModelConfig& c = d.config;
  c.norm = NormKind::layer_norm;
  c.norm_placement = NormPlacement::post;
  c.gated_mlp = false;
  c.mlp_bias = true;
  c.is_encoder_only = true;
  c.num_token_types = d.text.size("type_vocab_size", 2);
  const std::string positions = d.text.text("position_embedding_type", "absolute");
  c.positions = positions == "absolute" ? PositionKind::learned : PositionKind::relative_bias;
  AttentionConfig& a = d.attention;
  a.kind = AttentionLayerKind::encoder;
  a.causal = false;
  a.qkv_bias = a.o_bias = true;
  a.relative_bias = c.positions == PositionKind::relative_bias;
  a.rope = {};
  d.fill_uniform();
}

void build_whisper(ConfigDraft& d) {
  d.config.tie_embeddings = true;
  d.read_common();
  ModelConfig& c = d.config;
  d.num_layers = d.layer_count(d.text.first_of({"decoder_layers", "num_hidden_layers"}));
  c.norm = NormKind::layer_norm;
  c.gated_mlp = false;
  c.mlp_bias = true;
  c.positions = PositionKind::learned;
  AttentionConfig& self = d.attention;
  self.rope = {};
  self.qkv_bias = self.o_bias = true;
  AttentionConfig cross = self;
  cross.kind = AttentionLayerKind::cross;
  cross.causal = false;
  AttentionConfig encoder = self;
  encoder.kind = AttentionLayerKind::encoder;
  encoder.causal = false;
  encoder.num_qo_heads = encoder.num_kv_heads = d.text.size("encoder_attention_heads");
  encoder.head_dim_qk = encoder.head_dim_vo = c.hidden_size / encoder.num_qo_heads;
  encoder.sm_scale = 1.0 / std::sqrt(static_cast<double>(encoder.head_dim_qk));
  d.fill_uniform();
  const int cross_index = d.add(cross);
  for (LayerConfig& layer : c.layers) layer.cross_attention = cross_index;
  c.encoder = {.num_layers = d.layer_count("encoder_layers"),
               .attention = d.add(encoder),
               .intermediate_size = d.text.size("encoder_ffn_dim"),
               .max_positions = d.text.integer("max_source_positions", 1500)};
}

void build_mllama(ConfigDraft& d) {
  d.read_common(500000.0);
  AttentionConfig cross = d.attention;
  cross.kind = AttentionLayerKind::cross;
  cross.causal = false;
  cross.rope = {};
  cross.qk_norm = QkNorm::per_head;
  const std::vector<std::int64_t> crossing = d.text.integers("cross_attention_layers");
  d.fill(std::vector<LayerWord>(static_cast<std::size_t>(d.num_layers), LayerWord::full),
         [&](int i, LayerWord) {
           return std::find(crossing.begin(), crossing.end(), i) != crossing.end() ? cross
                                                                                   : d.attention;
         });
}

void build_t5(ConfigDraft& d) {
  d.config.tie_embeddings = true;
  d.read_common();
  ModelConfig& c = d.config;
  const int encoder_layers = d.num_layers;
  if (d.text.has("num_decoder_layers")) d.num_layers = d.layer_count("num_decoder_layers");
  c.gated_mlp = d.text.flag("is_gated_act", false);
  c.positions = PositionKind::relative_bias;
  AttentionConfig& self = d.attention;
  self.rope = {};
  self.sm_scale = 1.0;
  self.relative_bias = true;
  AttentionConfig cross = self;
  cross.kind = AttentionLayerKind::cross;
  cross.causal = false;
  cross.relative_bias = false;
  AttentionConfig encoder = self;
  encoder.kind = AttentionLayerKind::encoder;
  encoder.causal = false;
  d.fill_uniform();
  const int cross_index = d.add(cross);
  for (LayerConfig& layer : c.layers) layer.cross_attention = cross_index;
  c.encoder = {.num_layers = encoder_layers,
               .attention = d.add(encoder),
               .intermediate_size = c.intermediate_size,
               .max_positions = c.context_length};
}

}  // namespace attune::model
