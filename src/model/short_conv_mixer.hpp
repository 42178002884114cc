// Short convolutions of LFM2: out = W (C * conv(B * x)); the state holds the gated inputs B * x
// (layer model).
#pragma once

#include <memory>

#include "model/layer_part.hpp"
#include "model/linear_layer.hpp"
#include "model/loader.hpp"

namespace attune::model {

class ShortConvMixer final : public LayerPart {
 public:
  ShortConvMixer(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  struct Tensors {
    TensorView projected;  ///< [tokens, B | C | x]
    TensorView o;          ///< [tokens, channels]
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;

  LinearLayer layer_;
  std::int64_t channels_;
  std::unique_ptr<Linear> input_;
  std::unique_ptr<Linear> output_;
  ConvolutionWeights convolution_;
};

}  // namespace attune::model
