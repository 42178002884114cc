// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, and its descendants), absorbed: the
// cache keeps one latent and one rotated key part a token, the expansion matrices are folded into
// queries and outputs (layer model). Parts of a step that are to be expanded instead go through
// latent_expansion.hpp.
//
//   c = norm(W_kva x)[:rank], kr = rope(W_kva x)[rank:]           cached, 1 head
//   q~_h = W_UK[h]^T q_n,h                                        rank numbers a head
//   u_h = softmax(scale (q~_h . c + q_r,h . kr)) c                the backend's part
//   o_h = W_UV[h] u_h
// Sparse layers attend to the keys that an indexer keeps, their own or an earlier layer's
// (indexer.hpp).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/indexer.hpp"
#include "model/latent_expansion.hpp"
#include "model/layer_part.hpp"
#include "model/loader.hpp"

namespace attune::model {

class MlaMixer final : public LayerPart {
 public:
  MlaMixer(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  struct Tensors {
    TensorView q_latent;                      ///< [tokens, q_lora_rank]
    TensorView q;                             ///< [tokens, heads * (nope + rope)]
    TensorView latent;                        ///< [tokens, kv_lora_rank + rope]: what is cached
    TensorView absorbed;                      ///< [tokens, heads * (kv_lora_rank + rope)]
    TensorView u;                             ///< [tokens, heads * kv_lora_rank]
    TensorView o;                             ///< [tokens, heads * head_dim_vo]
    TensorView gate;                          ///< likewise, where the output is gated
    TensorView q_narrow, k_narrow, u_narrow;  ///< attention_call.hpp
    Indexer::Tensors index;                   ///< of a layer with an indexer
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;
  void load_expansion(Loader& loader, const std::string& name);
  void project(Step& step, const TensorView& x, const Tensors& t) const;
  [[nodiscard]] SparseCall sparse_call(const Step& step, const AttentionPart& part,
                                       const Tensors& t) const;
  Status attend(Step& step, const Tensors& t) const;
  /// The rows of one part, absorbed.
  Status attend_absorbed(Step& step, const AttentionPart& part, const LayerCall& cached,
                         const Tensors& t) const;

  int layer_;
  int group_;
  DType dtype_;  ///< of q, the latent and u as attention sees them
  int rope_;
  AttentionConfig config_;
  std::unique_ptr<Linear> q_a_;
  std::unique_ptr<Linear> q_;  ///< from the query latent, or from x where there is none
  std::unique_ptr<Linear> kv_a_;
  std::unique_ptr<Linear> gate_;
  std::unique_ptr<Linear> output_;
  std::unique_ptr<HeadLinears> absorb_;  ///< W_UK[h] transposed, [rank, nope]
  std::unique_ptr<HeadLinears> expand_;  ///< W_UV[h], [head_dim_vo, rank]
  std::optional<Indexer> indexer_;
  std::optional<LatentExpansion> expansion_;  ///< where steps may have expanded parts
  Norm q_norm_;
  Norm kv_norm_;
};

}  // namespace attune::model
