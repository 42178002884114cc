// ZAYA1's router (layer model): a small network instead of one matrix, which also reads what the
// router of the layer before came to.
//   s = W_d x + b (+ scale * s of the layer before);  logits = W_o gelu(W_2 gelu(W_1 norm(s)))
#pragma once

#include <memory>
#include <string>

#include "model/loader.hpp"
#include "model/step.hpp"

namespace attune::model {

class RouterNetwork {
 public:
  RouterNetwork(Loader& loader, const std::string& prefix, std::int64_t num_choices);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const;
  /// x [tokens, hidden] → logits [tokens, choices]; moves Step::router_states on.
  void forward(Step& step, const TensorView& x, const TensorView& logits) const;

 private:
  std::int64_t width_;
  std::unique_ptr<Linear> down_, first_, second_, output_;
  Norm norm_;
  Buffer state_scale_;  ///< none: the first layer
};

}  // namespace attune::model
