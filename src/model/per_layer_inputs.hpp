// Gemma-4's per-layer inputs: each layer gets a small vector of its own a token, half looked up by
// token id, half projected from the embedding, and folds it into the residual stream (layer model).
#pragma once

#include <cstdint>
#include <memory>

#include <attune/tensor.hpp>

#include "model/loader.hpp"
#include "model/step.hpp"

namespace attune::model {

/// Made once a step, before the first layer.
class PerLayerInputs {
 public:
  explicit PerLayerInputs(Loader& loader);

  /// [tokens, layers * size], which stays taken for the whole step.
  [[nodiscard]] TensorView take(StepMemory& memory, std::int64_t num_tokens) const;
  void lay_out(StepMemory& memory, std::int64_t num_tokens) const;
  /// x: the embedded tokens [tokens, hidden].
  void fill(Ops& ops, StepMemory& memory, const TensorView& tokens, const TensorView& x,
            const TensorView& out) const;

 private:
  std::int64_t size_;
  std::int64_t width_;
  float projection_scale_;
  std::unique_ptr<Linear> table_;
  std::unique_ptr<Linear> projection_;
  Norm norm_;
};

/// The third branch of each layer, after attention and feed-forward, and the layer's scalar.
class PerLayerBranch {
 public:
  PerLayerBranch(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const;
  void forward(Step& step, const TensorView& x) const;

 private:
  struct Tensors {
    TensorView gate;  ///< [tokens, size]
    TensorView out;   ///< [tokens, hidden]
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;

  int layer_;
  std::int64_t size_;
  Activation activation_;
  float scalar_;
  std::unique_ptr<Linear> gate_;
  std::unique_ptr<Linear> projection_;
  Norm norm_;
};

}  // namespace attune::model
