// act(gate) · up, then down; or act(up), then down (layer model).
#pragma once

#include <memory>
#include <string>

#include "model/layer_part.hpp"
#include "model/loader.hpp"

namespace attune::model {

class DenseFeedForward final : public LayerPart {
 public:
  /// `prefix`: "model.layers.7.mlp."
  DenseFeedForward(Loader& loader, const std::string& prefix, std::int64_t intermediate);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  struct Tensors {
    TensorView up;      ///< [tokens, gate | up]
    TensorView hidden;  ///< [tokens, intermediate]
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;

  bool gated_;
  ActivationParams activation_;
  std::unique_ptr<Linear> up_;
  std::unique_ptr<Linear> down_;
};

/// The activation that the config asks of every feed-forward.
[[nodiscard]] ActivationParams activation_of(const ModelConfig& config);

/// Where a layer keeps its feed-forward: "model.layers.7.mlp." and the like.
[[nodiscard]] std::string feed_forward_prefix(const Loader& loader, int layer);

}  // namespace attune::model
