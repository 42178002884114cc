// Lightning attention of MiniMax-Text-01: SiLU on q, k and v, a fixed decay a head, a norm over all
// heads, a sigmoid gate from the layer's input (layer model).
#pragma once

#include <memory>

#include "model/layer_part.hpp"
#include "model/linear_layer.hpp"
#include "model/loader.hpp"

namespace attune::model {

class LightningMixer final : public LayerPart {
 public:
  LightningMixer(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  struct Tensors {
    TensorView qkv;   ///< [tokens, q | k | v]
    TensorView gate;  ///< [tokens, width]
    TensorView o;     ///< [tokens, width]
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;

  LinearLayer layer_;
  std::int64_t width_;  ///< heads * head_dim
  std::unique_ptr<Linear> qkv_;
  std::unique_ptr<Linear> gate_;
  std::unique_ptr<Linear> output_;
  Buffer slopes_;
  Norm norm_;
};

}  // namespace attune::model
