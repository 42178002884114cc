// One decoder layer: a mixer and a feed-forward, and where the norms sit around them (layer model).
#pragma once

#include <memory>
#include <optional>

#include "model/hyper_connection.hpp"
#include "model/layer_part.hpp"
#include "model/loader.hpp"
#include "model/per_layer_inputs.hpp"
#include "model/residual_scaling.hpp"

namespace attune::model {

class DecoderLayer {
 public:
  DecoderLayer(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const;
  /// x [num_tokens, hidden] is the residual stream, or all of them one beside the other, updated in
  /// place.
  Status forward(Step& step, const TensorView& x) const;

 private:
  /// A branch and the norms around it; absent norms have no weight of their own.
  struct Branch {
    std::unique_ptr<LayerPart> part;
    bool norm_before = false;
    bool norm_after = false;
    bool normed_residual = false;  ///< the branch is added to its own normed input
    float residual_factor = 1.0f;
    float factor = 1.0f;  ///< of the branch, as it is added
    Norm before;
    Norm after;
    std::optional<ResidualScaling> scaling;
    std::optional<HyperConnection> hyper;

    /// x += factor * out and nothing else.
    [[nodiscard]] bool adds_plainly() const { return !scaling && residual_factor == 1.0f; }
  };
  void set_mix(const ModelConfig& config, int layer);
  [[nodiscard]] static TensorView input_of(const Step& step, const Branch& branch,
                                           const TensorView& room);
  /// out = the branch of x; with `normed` its input lies in `room` already.
  Status run_branch(Step& step, const Branch& branch, const TensorView& x, const TensorView& room,
                    const TensorView& out, bool normed = false) const;
  void add_branch(Step& step, const Branch& branch, const TensorView& out,
                  const TensorView& x) const;
  Status add_parallel(Step& step, const TensorView& x) const;
  /// x: streams [num_tokens, streams * hidden].
  Status connect(Step& step, const TensorView& x) const;

  std::int64_t hidden_;
  float residual_multiplier_;
  bool parallel_ = false;
  Branch mixer_;
  Branch feed_forward_;
  std::optional<PerLayerBranch> per_layer_;
};

}  // namespace attune::model
