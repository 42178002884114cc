// Mixture of experts: a router chooses, the chosen experts work, a shared one may join (layer
// model).
#pragma once

#include <memory>
#include <optional>

#include "model/dense_feed_forward.hpp"
#include "model/layer_part.hpp"
#include "model/loader.hpp"
#include "model/router_network.hpp"

namespace attune::model {

class MoeFeedForward final : public LayerPart {
 public:
  MoeFeedForward(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  struct Tensors {
    TensorView logits;   ///< fp32 [tokens, experts]
    TensorView ids;      ///< i32 [tokens, experts_per_token]
    TensorView weights;  ///< fp32, likewise
    TensorView gate;     ///< fp32 [tokens, 1]: of the shared expert
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;

  MoeConfig config_;
  std::unique_ptr<Linear> router_;
  std::optional<RouterNetwork> router_network_;  ///< instead of it
  Buffer selection_bias_;
  std::unique_ptr<Experts> experts_;
  std::optional<DenseFeedForward> shared_;
  std::unique_ptr<Linear> shared_gate_;
};

}  // namespace attune::model
