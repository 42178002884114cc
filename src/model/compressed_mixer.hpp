// Compressed attention of DeepSeek-V4 (layer model): multi-query attention over a window of latents and,
// in most layers, over what windows of tokens left behind (compressor.hpp).
//
//   c = norm(W_qa x);  q = rope(unit(W_qb c)) a head;  e = rope(norm(W_kv x)), keys and values
//   u = attention(q; e of the window, compressed keys);  o = W_ob [W_oa,g (u of group g turned back)]
// Heads turn in their last dims. Values are keys, so that u is turned too, by relative positions once
// it is turned back by the query's own. An indexer scores compressed keys:
//   q_I = rope(W_qI c);  w = W_w x / sqrt(heads * dim)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <attune/compressed_call.hpp>
#include <attune/sparse_call.hpp>

#include "model/compressor.hpp"
#include "model/layer_part.hpp"
#include "model/loader.hpp"

namespace attune::model {

class CompressedMixer final : public LayerPart {
 public:
  CompressedMixer(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  struct Tensors {
    TensorView q_latent;  ///< [tokens, q_lora_rank]
    TensorView q;         ///< [tokens, heads * dim]
    TensorView key;       ///< [tokens, dim]
    TensorView u;         ///< [tokens, heads * dim]
    TensorView o;         ///< [tokens, groups * o_lora_rank]
    TensorView index_q;   ///< [tokens, index heads * index dim]
    TensorView index_weights;
    TensorView q_narrow, u_narrow, index_q_narrow;  ///< attention_call.hpp
    Compressor::Tensors compressed;
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;
  void load_indexer(Loader& loader, const std::string& prefix);
  void project(Step& step, const TensorView& x, const Tensors& t) const;
  Status attend(Step& step, const Tensors& t) const;

  int layer_;
  int group_;
  DType dtype_;  ///< of queries and outputs as attention sees them
  AttentionConfig config_;
  int rope_;
  NormParams unit_;
  std::unique_ptr<Linear> q_a_;
  std::unique_ptr<Linear> q_b_;
  std::unique_ptr<Linear> kv_;
  std::unique_ptr<HeadLinears> o_a_;  ///< one a group of heads
  std::unique_ptr<Linear> o_b_;
  Norm q_norm_;
  Norm kv_norm_;
  Buffer sinks_;
  std::optional<Compressor> compressor_;
  std::unique_ptr<Linear> index_q_;
  std::unique_ptr<Linear> index_weights_;
};

}  // namespace attune::model
