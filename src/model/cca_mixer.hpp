// Compressed convolutional attention of ZAYA1 (arXiv:2510.04476; layer model): grouped-query
// attention whose queries and keys went through two short convolutions, and half of whose values
// come from the token before.
//
//   r = [Wq x | Wk x];  s = conv0(r), depthwise;  c = conv1(s), a full matrix a head and tap
//   q = sqrt(d) unit(c_q + (r_q + rep(r_k)) / 2);  k = t sqrt(d) unit(c_k + mean of q's second
//   term) v_t = [Wv1 x_t | Wv2 x_{t-1}]
// conv0 at lag j is depthwise too, over shifted taps. So one short convolution over [r at every lag
// that conv1 reads | Wv2 x] is all the memory of earlier tokens: conv1 becomes a plain product, and
// before the first token s is conv0's bias, as published.
#pragma once

#include <memory>
#include <vector>

#include "model/layer_part.hpp"
#include "model/linear_layer.hpp"
#include "model/loader.hpp"

namespace attune::model {

class CcaMixer final : public LayerPart {
 public:
  CcaMixer(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  struct Tensors {
    TensorView projected;  ///< [tokens, q | k | current half of v | delayed half of v]
    TensorView lagged;     ///< [tokens, q | k at each lag, oldest first | delayed half of v]
    TensorView convolved;  ///< likewise
    TensorView qk;         ///< [tokens, q | k]
    TensorView v;          ///< [tokens, v]
    TensorView o;
    TensorView q_narrow, k_narrow, v_narrow, o_narrow;  ///< attention_call.hpp
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;
  void load_convolutions(Loader& loader, const std::string& prefix);
  void mix_heads(Ops& ops, const Tensors& t) const;

  int layer_;
  int group_;
  DType dtype_;
  AttentionConfig config_;
  LinearLayer convolution_;
  std::int64_t taps_;      ///< of the one convolution
  std::int64_t channels_;  ///< of q and k
  std::int64_t delayed_;   ///< of v
  int rope_;
  std::unique_ptr<Linear> projection_;
  std::unique_ptr<Linear> output_;
  Buffer taps_weight_;
  Buffer taps_bias_;
  std::vector<std::unique_ptr<Linear>> mixing_;  ///< conv1: [lag * heads + head], [dim, dim]
  Buffer mixing_bias_;
  NormParams unit_;
  std::vector<float> temperature_;  ///< of each KV head
};

}  // namespace attune::model
