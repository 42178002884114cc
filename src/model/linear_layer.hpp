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
      : layer_(layer),
        group_(loader.linear_group(layer)),
        dtype_(loader.spec(group_).q_dtype),
        config_(*loader.config().linear_of(layer)) {}

  /// Counts what run() takes on top of the mixer's own tensors.
  void lay_out(StepMemory& memory, std::int64_t num_tokens) const {
    const auto frame = memory.frame();
    (void)take(memory, num_tokens);
  }

  /// `call` has the step's tensors, all rows, and the layer's weights; the states are filled in
  /// here. o: [tokens, width].
  Status run(Step& step, const LinearCall& call, const TensorView& o) const;

 private:
  /// The call's tensors in the backend's dtype, none of them where that is fp32
  /// (attention_call.hpp).
  struct Narrow {
    TensorView conv_input, q, k, v, gate, beta, o;
  };
  [[nodiscard]] Narrow take(StepMemory& memory, std::int64_t num_tokens) const;

  int layer_;
  int group_;
  DType dtype_;
  LinearConfig config_;
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
