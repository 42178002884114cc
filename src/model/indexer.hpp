// The indexer of sparse latent attention (DeepSeek-V3.2, arXiv:2512.02556, and GLM-5): which cached
// keys a query is worth attending to (layer model). What it makes is scored by the backend
// (<attune/sparse_call.hpp>).
//
//   q = rope(W_q c_q)         heads of its own, from the query latent
//   k = rope(norm(W_k x))     one key a token, cached
//   w = W_w x / sqrt(heads * dim)
// Heads turn in their first dims. The published Hadamard transform of q and k changes no score and
// serves eight-bit keys only: it is left out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <attune/sparse_call.hpp>

#include "model/loader.hpp"
#include "model/step.hpp"

namespace attune::model {

class Indexer {
 public:
  /// `prefix`: "….self_attn.indexer.".
  Indexer(Loader& loader, const AttentionConfig& config, DType q_dtype, const std::string& prefix);

  struct Tensors {
    TensorView q;         ///< [tokens, heads * dim]
    TensorView q_narrow;  ///< as attention reads it (attention_call.hpp)
    TensorView k;         ///< [tokens, dim]
    TensorView weights;   ///< [tokens, heads]
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;
  void project(Step& step, const TensorView& x, const TensorView& q_latent, const Tensors& t) const;
  /// The rows of one part, for append_kv and run.
  void fill(const Tensors& t, std::int64_t first_row, std::int64_t num_rows,
            SparseCall& call) const;

 private:
  IndexerConfig config_;
  DType dtype_;
  int rope_;
  std::unique_ptr<Linear> q_;
  std::unique_ptr<Linear> k_;
  std::unique_ptr<Linear> weights_;
  Norm k_norm_;
};

}  // namespace attune::model
