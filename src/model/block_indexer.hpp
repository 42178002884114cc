// The indexer of block-sparse attention (MiniMax-M3): which blocks of cached keys each KV head of a
// query is worth attending to (layer model). What it makes is scored by the backend
// (<attune/sparse_call.hpp>).
//
//   q = rope(norm(W_q x))     one head for each KV head
//   k = rope(norm(W_k x))     one key a token, cached
// Norms are the model's own; heads turn in the dims in which those of attention do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <attune/sparse_call.hpp>

#include "model/loader.hpp"
#include "model/step.hpp"

namespace attune::model {

class BlockIndexer {
 public:
  /// `prefix`: "….self_attn.".
  BlockIndexer(Loader& loader, const AttentionConfig& config, DType q_dtype,
               const std::string& prefix);

  struct Tensors {
    TensorView qk;        ///< [tokens, q | k]
    TensorView q_narrow;  ///< as attention reads it (attention_call.hpp)
    TensorView lists;     ///< i32 [tokens, num_kv_heads * topk]
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;
  /// The call of all rows, but for the cache.
  [[nodiscard]] SparseCall project(Step& step, const TensorView& x, const Tensors& t) const;

 private:
  IndexerConfig config_;
  DType dtype_;
  int rope_;
  bool interleaved_;
  std::unique_ptr<Linear> qk_;
  Norm q_norm_;
  Norm k_norm_;
};

}  // namespace attune::model
