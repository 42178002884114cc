// Softmax attention with projected queries, keys and values: multi-head, grouped and multi-query
// attention of every dense family (layer model). What the mathematics asks of the attention itself
// (window, cap, sinks, scale) is in the group's AttentionSpec; only what happens before and after
// is here. Block-sparse layers have an indexer beside it (block_indexer.hpp).
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "model/block_indexer.hpp"
#include "model/layer_part.hpp"
#include "model/loader.hpp"

namespace attune::model {

class GqaMixer final : public LayerPart {
 public:
  GqaMixer(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  struct Tensors {
    TensorView qkv;      ///< [tokens, q | k | v]
    TensorView values;   ///< [tokens, v], where values are made from keys
    TensorView queries;  ///< [tokens, num_qo_heads * kDualChunkQueries * head_dim_qk], dual_chunk
    TensorView o;        ///< [tokens, num_qo_heads * head_dim_vo]
    /// attention_call.hpp; q, k and v by themselves, or all three as they lie in qkv.
    TensorView q_narrow, k_narrow, v_narrow, qkv_narrow, o_narrow;
    BlockIndexer::Tensors index;  ///< of a layer with an indexer
  };
  /// [tokens, heads, head dim] in a product's output; k and v of a layer that writes its cache.
  struct Heads {
    TensorView q_columns, k_columns;  ///< [tokens, width], for norms of a whole layer
    TensorView q, k, v;
    TensorView gate;  ///< beside q
  };
  [[nodiscard]] Heads heads_of(const TensorView& qkv) const;
  void prepare(Step& step, const Heads& h) const;
  [[nodiscard]] Heads narrow(Step& step, const Tensors& t, const Heads& h) const;
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;
  [[nodiscard]] bool narrows_together() const;
  /// The queries of every head, turned for each kind of keys.
  void turn_queries(Step& step, const TensorView& q, const TensorView& out) const;
  [[nodiscard]] bool in_chunks() const { return config_.kind == AttentionLayerKind::dual_chunk; }
  [[nodiscard]] bool writes_cache() const { return kv_layer_ == layer_; }

  int layer_;
  int kv_layer_;  ///< whose cache this layer reads: its own, or an earlier layer's
  int group_;
  DType dtype_;  ///< of q, k, v and o as attention sees them
  AttentionConfig config_;
  int rope_;
  std::array<int, kDualChunkQueries> query_ropes_{};  ///< of dual_chunk
  int temperature_;
  std::unique_ptr<Linear> qkv_;
  std::unique_ptr<Linear> output_;
  Norm q_norm_;
  Norm k_norm_;
  NormParams v_norm_;
  Buffer sinks_;
  std::optional<BlockIndexer> indexer_;
};

}  // namespace attune::model
