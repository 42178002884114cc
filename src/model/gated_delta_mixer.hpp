// Gated delta rule layers: GDN (Qwen3-Next, Qwen3.5, OLMo-Hybrid) and KDA (Kimi-Linear), which
// differ in the decay (one number a head, or one a key channel) and in the output's gate (SiLU, or
// sigmoid) (layer model).
#pragma once

#include <memory>
#include <string>

#include "model/layer_part.hpp"
#include "model/linear_layer.hpp"
#include "model/loader.hpp"

namespace attune::model {

class GatedDeltaMixer final : public LayerPart {
 public:
  GatedDeltaMixer(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  /// A projection, directly or through a narrow middle.
  struct Projection {
    std::unique_ptr<Linear> first;
    std::unique_ptr<Linear> second;  ///< nullptr: first is all

    [[nodiscard]] std::int64_t rows() const { return second ? second->rows() : first->rows(); }
    [[nodiscard]] std::int64_t middle() const { return second ? first->rows() : 0; }
    void run(Ops& ops, const TensorView& x, const TensorView& middle, const TensorView& out) const;
  };
  struct Tensors {
    TensorView qkv;        ///< [tokens, q | k | v]
    TensorView beta;       ///< [tokens, num_v_heads]
    TensorView decay;      ///< gdn: [tokens, num_v_heads]; kda: [tokens, num_v_heads * head_dim_k]
    TensorView gate;       ///< [tokens, num_v_heads * head_dim_v]
    TensorView decay_mid;  ///< [tokens, rank]
    TensorView gate_mid;   ///< [tokens, rank]
    TensorView o;          ///< [tokens, num_v_heads * head_dim_v]
  };
  void load_fused(Loader& loader, const std::string& prefix);
  void load_separate(Loader& loader, const std::string& prefix);
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;

  LinearLayer layer_;
  LinearConfig config_;
  std::unique_ptr<Linear> qkv_;
  std::unique_ptr<Linear> beta_;
  Projection decay_;
  Projection gate_;
  ConvolutionWeights convolution_;
  Buffer a_log_;
  Buffer dt_bias_;
  Norm norm_;
  std::unique_ptr<Linear> output_;
};

}  // namespace attune::model
