// Latent attention in expanded form (layer model): keys and values of every head are made from
// cached latents, and attention is that of ordinary heads. Fewer operations a query than the
// absorbed form, and a product a key before it: for prompts (runtime/latent_form.hpp decides).
//
//   k_h = [W_UK[h] c, kr]    v_h = W_UV[h] c    o_h = softmax(scale q_h . k_h) v_h
//
// A long cached prefix is expanded chunk by chunk, in memory for one chunk; the chunks' outputs are
// joined by their lse.
#pragma once

#include <memory>

#include "model/loader.hpp"
#include "model/step.hpp"

namespace attune::model {

class LatentExpansion {
 public:
  /// `kv_b`: [heads * (qk_nope_head_dim + head_dim_vo), kv_lora_rank], without ".weight".
  LatentExpansion(Loader& loader, const AttentionConfig& config, const AttentionSpec& latent,
                  const std::string& kv_b);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const;

  /// o fp32 [rows of the part, heads, head_dim_vo] from q fp32 [.., heads, head_dim_qk], both
  /// rotated; `cache` holds the part's own latents too.
  Status attend(Step& step, const AttentionPart& part, const TensorView& q, const TensorView& cache,
                int layer, const TensorView& o) const;

 private:
  struct Keys {
    TensorView stored;  ///< [keys, rank + rope] as cached; undefined where that is fp32
    TensorView latent;  ///< [keys, rank + rope]
    TensorView kv;      ///< [keys, heads * (nope + head_dim_vo)]
    TensorView k;       ///< [keys, heads * head_dim_qk] as attention reads them
    TensorView v;       ///< [keys, heads * head_dim_vo]; undefined where attention reads `kv`
  };
  struct Queries {
    TensorView q;  ///< [rows, heads * head_dim_qk]; undefined where attention reads fp32
    TensorView o;  ///< [rows, heads * head_dim_vo], of one chunk
    TensorView o_narrow;
    TensorView lse;        ///< [rows, heads]
    TensorView chunk_lse;  ///< likewise, of one chunk
  };
  [[nodiscard]] Queries take_queries(StepMemory& memory, std::int64_t num_rows) const;
  [[nodiscard]] Keys take_keys(StepMemory& memory, std::int64_t num_keys) const;
  void expand(Ops& ops, const TensorView& cache, const TensorView& slots, const Keys& t) const;
  Status run(Step& step, const ExpandedPart& chunk, const Keys& keys, const TensorView& q,
             const TensorView& o, const TensorView& lse, int layer) const;

  AttentionConfig config_;
  DType dtype_;  ///< of q, k, v and o as attention sees them
  DType cache_dtype_;
  std::int64_t chunk_;
  std::unique_ptr<Linear> kv_b_;
};

}  // namespace attune::model
