#include "model/layer_part.hpp"

#include <string>

#include "model/dense_feed_forward.hpp"
#include "model/gqa_mixer.hpp"
#include "model/loader.hpp"
#include "model/moe_feed_forward.hpp"

namespace attune::model {
namespace {

Status not_yet(int layer, std::string_view what) {
  return unsupported("layer " + std::to_string(layer) + " is of kind " + std::string(what) +
                     ", which this build cannot run");
}

}  // namespace

std::unique_ptr<LayerPart> make_mixer(Loader& loader, int layer) {
  const ModelConfig& config = loader.config();
  const LayerConfig& parts = config.layers[static_cast<std::size_t>(layer)];
  if (parts.cross_attention >= 0) {
    loader.fail(not_yet(layer, "cross attention"));
    return nullptr;
  }
  if (const LinearConfig* linear = config.linear_of(layer)) {
    loader.fail(not_yet(layer, name(linear->variant)));
    return nullptr;
  }
  const AttentionConfig* attention = config.attention_of(layer);
  if (attention == nullptr) return nullptr;
  switch (attention->kind) {
    case AttentionLayerKind::full:
    case AttentionLayerKind::sliding:
    case AttentionLayerKind::chunked:
    case AttentionLayerKind::encoder: return std::make_unique<GqaMixer>(loader, layer);
    default: loader.fail(not_yet(layer, name(attention->kind))); return nullptr;
  }
}

std::unique_ptr<LayerPart> make_feed_forward(Loader& loader, int layer) {
  const ModelConfig& config = loader.config();
  const LayerConfig& parts = config.layers[static_cast<std::size_t>(layer)];
  switch (parts.feed_forward) {
    case FeedForwardKind::none: return nullptr;
    case FeedForwardKind::dense:
      return std::make_unique<DenseFeedForward>(loader, feed_forward_prefix(loader, layer),
                                                parts.intermediate_size);
    case FeedForwardKind::moe: return std::make_unique<MoeFeedForward>(loader, layer);
    case FeedForwardKind::dense_and_moe:
      loader.fail(not_yet(layer, "dense and mixture of experts together"));
      return nullptr;
  }
  return nullptr;
}

}  // namespace attune::model
