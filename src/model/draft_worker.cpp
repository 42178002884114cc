#include "model/draft_worker.hpp"

#include <algorithm>
#include <string>

#include "base/join.hpp"

namespace attune::model {
namespace {

using base::join;

/// Layers that have both mixers count as either; the worker's has what its word says and no more.
const LayerConfig* last_of(const ModelConfig& target, DraftLayer kind) {
  for (auto layer = target.layers.rbegin(); layer != target.layers.rend(); ++layer)
    if ((kind == DraftLayer::full ? layer->attention : layer->linear) >= 0) return &*layer;
  return nullptr;
}

}  // namespace

Result<std::vector<DraftLayer>> parse_draft_layers(std::string_view words) {
  std::vector<DraftLayer> layers;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    const std::string_view word = words.substr(begin, end - begin);
    if (word != "full" && word != "linear")
      return invalid_argument(join("a draft layer is full or linear, not \"", word, "\""));
    layers.push_back(word == "full" ? DraftLayer::full : DraftLayer::linear);
    begin = end + 1;
  }
  return layers;
}

Result<ModelConfig> draft_worker(const ModelConfig& target, std::span<const DraftLayer> layers) {
  if (layers.empty()) return invalid_argument("a draft worker has at least one layer");
  ModelConfig worker = target;
  worker.layers.clear();
  for (const DraftLayer kind : layers) {
    const bool full = kind == DraftLayer::full;
    const LayerConfig* like = last_of(target, kind);
    if (like == nullptr)
      return unsupported(join(target.architecture, " has no layer of ", full ? "softmax" : "linear",
                              " attention that a draft layer could be like"));
    LayerConfig layer = *like;
    layer.kv_source = -1;
    (full ? layer.linear : layer.attention) = -1;
    worker.layers.push_back(layer);
  }
  // A model without linear layers is one whose list of them is empty.
  if (std::ranges::none_of(layers, [](DraftLayer kind) { return kind == DraftLayer::linear; }))
    worker.linear.clear();
  return worker;
}

}  // namespace attune::model
