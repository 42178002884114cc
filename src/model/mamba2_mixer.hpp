// Mamba-2 layers: one projection to gate, x, B, C and dt; the state space; a gated norm (layer
// model).
#pragma once

#include <memory>

#include "model/layer_part.hpp"
#include "model/linear_layer.hpp"
#include "model/loader.hpp"

namespace attune::model {

class Mamba2Mixer final : public LayerPart {
 public:
  Mamba2Mixer(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  struct Tensors {
    TensorView projected;  ///< [tokens, z | x B C | dt]
    TensorView o;          ///< [tokens, inner]
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;
  void scale_segments(Ops& ops, const TensorView& projected) const;
  void norm(Ops& ops, const TensorView& o) const;

  LinearLayer layer_;
  LinearConfig config_;
  std::int64_t inner_;       ///< num_v_heads * head_dim_v
  std::int64_t norm_width_;  ///< channels normalised together
  float input_scale_;        ///< Falcon-H1's ssm_in_multiplier
  std::unique_ptr<Linear> input_;
  std::unique_ptr<Linear> output_;
  ConvolutionWeights convolution_;
  Buffer a_log_;
  Buffer dt_bias_;
  Buffer d_skip_;
  Norm norm_;
};

}  // namespace attune::model
