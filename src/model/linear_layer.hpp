// What every linear mixer shares: its group, its states, and the call of its backend, part by part
// (layer model).
#pragma once

#include <attune/linear_state.hpp>
#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "model/loader.hpp"
#include "model/step.hpp"

namespace attune::model {

class LinearLayer {
 public:
  LinearLayer(const Loader& loader, int layer)
      : layer_(layer), group_(loader.linear_group(layer)) {}

  /// `call` has the step's tensors, all rows, and the layer's weights; the states are filled in
  /// here. o: [tokens, width].
  Status run(Step& step, const LinearCall& call, const TensorView& o) const;

 private:
  int layer_;
  int group_;
};

/// The depthwise convolution of a mixer: weights [channels, taps], of one tensor or of q, k and v
/// apart.
struct ConvolutionWeights {
  Buffer weight;
  Buffer bias;

  ConvolutionWeights() = default;
  /// `names` without ".weight".
  ConvolutionWeights(Loader& loader, std::span<const std::string> names,
                     const LinearConfig& config);
  void put_into(LinearCall& call) const;
};

}  // namespace attune::model
