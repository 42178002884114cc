// A decoder layer is a mixer (tokens look at each other) and a feed-forward (each token by itself),
// each a small class behind one interface, made from data by kind (layer model).
//
// A new kind of layer: one file with a class, one line in make_mixer() or make_feed_forward().
#pragma once

#include <cstdint>
#include <memory>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "model/step.hpp"

namespace attune::model {

class Loader;
struct ModelConfig;

class LayerPart {
 public:
  virtual ~LayerPart() = default;

  /// Takes from `memory` whatever forward() will take for `num_tokens`, and gives it back.
  virtual void lay_out(StepMemory& memory, std::int64_t num_tokens) const = 0;

  /// x [num_tokens, hidden], already normed, stays as it is; `out` (another view) is overwritten.
  virtual Status forward(Step& step, const TensorView& x, const TensorView& out) const = 0;
};

/// The mixer of a layer, or nullptr where the layer has none. Failures are kept in `loader`.
[[nodiscard]] std::unique_ptr<LayerPart> make_mixer(Loader& loader, int layer);
[[nodiscard]] std::unique_ptr<LayerPart> make_feed_forward(Loader& loader, int layer);

/// Some layer's experts are added after the next layer (Step::shortcut).
[[nodiscard]] bool has_shortcut(const ModelConfig& config);

}  // namespace attune::model
