#include "model/layer_part.hpp"

#include <string>
#include <utility>

#include "model/cca_mixer.hpp"
#include "model/compressed_mixer.hpp"
#include "model/dense_feed_forward.hpp"
#include "model/gated_delta_mixer.hpp"
#include "model/gqa_mixer.hpp"
#include "model/lightning_mixer.hpp"
#include "model/linear_families.hpp"
#include "model/loader.hpp"
#include "model/mamba2_mixer.hpp"
#include "model/mla_mixer.hpp"
#include "model/moe_feed_forward.hpp"
#include "model/parallel_mixer.hpp"
#include "model/short_conv_mixer.hpp"
#include "model/shortcut_feed_forward.hpp"

namespace attune::model {
namespace {

Status not_yet(int layer, std::string_view what) {
  return unsupported("layer " + std::to_string(layer) + " is of kind " + std::string(what) +
                     ", which this build cannot run");
}

std::unique_ptr<LayerPart> make_attention(Loader& loader, int layer) {
  const AttentionConfig* attention = loader.config().attention_of(layer);
  if (attention == nullptr) return nullptr;
  switch (attention->kind) {
    case AttentionLayerKind::full:
    case AttentionLayerKind::sliding:
    case AttentionLayerKind::chunked:
    case AttentionLayerKind::dual_chunk:
    case AttentionLayerKind::minimax_sparse:
    case AttentionLayerKind::encoder: return std::make_unique<GqaMixer>(loader, layer);
    case AttentionLayerKind::mla:
    case AttentionLayerKind::sparse_mla: return std::make_unique<MlaMixer>(loader, layer);
    case AttentionLayerKind::dsv4: return std::make_unique<CompressedMixer>(loader, layer);
    default: loader.fail(not_yet(layer, name(attention->kind))); return nullptr;
  }
}

std::unique_ptr<LayerPart> make_linear_mixer(Loader& loader, int layer) {
  const std::string& family = loader.config().linear_of(layer)->family;
  if (!family.empty()) return loader.config().families->find(family)->mixer(loader, layer);
  const Variant variant = loader.config().linear_of(layer)->variant;
  switch (variant) {
    case Variant::gdn:
    case Variant::kda: return std::make_unique<GatedDeltaMixer>(loader, layer);
    case Variant::mamba2: return std::make_unique<Mamba2Mixer>(loader, layer);
    case Variant::lightning: return std::make_unique<LightningMixer>(loader, layer);
    case Variant::short_conv: return std::make_unique<ShortConvMixer>(loader, layer);
    default: loader.fail(not_yet(layer, name(variant))); return nullptr;
  }
}

}  // namespace

std::unique_ptr<LayerPart> make_mixer(Loader& loader, int layer) {
  const ModelConfig& config = loader.config();
  const LayerConfig& parts = config.layers[static_cast<std::size_t>(layer)];
  if (parts.cross_attention >= 0) {
    loader.fail(not_yet(layer, "cross attention"));
    return nullptr;
  }
  const AttentionConfig* compressed = config.attention_of(layer);
  if (compressed != nullptr && compressed->cca_time0 > 0)
    return std::make_unique<CcaMixer>(loader, layer);
  std::unique_ptr<LayerPart> attention = make_attention(loader, layer);
  if (config.linear_of(layer) == nullptr) return attention;
  std::unique_ptr<LayerPart> linear = make_linear_mixer(loader, layer);
  if (!attention || !linear) return linear;
  return std::make_unique<ParallelMixer>(config, std::move(attention), std::move(linear));
}

std::unique_ptr<LayerPart> make_feed_forward(Loader& loader, int layer) {
  const ModelConfig& config = loader.config();
  const LayerConfig& parts = config.layers[static_cast<std::size_t>(layer)];
  switch (parts.feed_forward) {
    case FeedForwardKind::none: return nullptr;
    case FeedForwardKind::dense: {
      const std::string sub = loader.sublayer(layer);
      const std::string prefix = sub.empty() ? feed_forward_prefix(loader, layer)
                                             : loader.layer(layer) + "mlps" + sub + ".";
      auto dense = std::make_unique<DenseFeedForward>(loader, prefix, parts.intermediate_size);
      const bool ends =
          layer > 0 && config.layers[static_cast<std::size_t>(layer - 1)].feed_forward ==
                           FeedForwardKind::dense_and_moe;
      if (!ends) return dense;
      return std::make_unique<ShortcutEnd>(std::move(dense));
    }
    case FeedForwardKind::moe: return std::make_unique<MoeFeedForward>(loader, layer);
    case FeedForwardKind::dense_and_moe: {
      auto dense = std::make_unique<DenseFeedForward>(
          loader, loader.layer(layer) + "mlps" + loader.sublayer(layer) + ".",
          parts.intermediate_size);
      return std::make_unique<ShortcutBegin>(std::move(dense),
                                             std::make_unique<MoeFeedForward>(loader, layer));
    }
  }
  return nullptr;
}

bool has_shortcut(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers)
    if (layer.feed_forward == FeedForwardKind::dense_and_moe) return true;
  return false;
}

}  // namespace attune::model
