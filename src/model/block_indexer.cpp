#include "model/block_indexer.hpp"

#include <array>

#include "model/attention_call.hpp"

namespace attune::model {

BlockIndexer::BlockIndexer(Loader& loader, const AttentionConfig& config, DType q_dtype,
                           const std::string& prefix)
    : config_(config.indexer),
      dtype_(q_dtype),
      rope_(loader.ropes().rope_index(config.rope)),
      interleaved_(config.rope.interleaved) {
  const std::int64_t dim = config_.head_dim;
  const std::array<Matrix, 2> stack{
      Matrix{loader.pick(prefix, {"index_q_proj", "indexer.q_proj"}), config_.num_heads * dim},
      Matrix{loader.pick(prefix, {"index_k_proj", "indexer.k_proj"}), dim}};
  qk_ = loader.linear(stack, loader.config().hidden_size);
  q_norm_ = loader.norm(loader.pick(prefix, {"index_q_norm", "indexer.q_norm"}), dim);
  k_norm_ = loader.norm(loader.pick(prefix, {"index_k_norm", "indexer.k_norm"}), dim);
}

BlockIndexer::Tensors BlockIndexer::take(StepMemory& memory, std::int64_t n) const {
  const std::int64_t q_width = std::int64_t{config_.num_heads} * config_.head_dim;
  return {.qk = memory.take(DType::f32, {n, qk_->rows()}),
          .q_narrow = take_narrow(memory, dtype_, n, q_width),
          .lists = memory.take(DType::i32, {n, std::int64_t{config_.num_heads} * config_.topk})};
}

SparseCall BlockIndexer::project(Step& step, const TensorView& x, const Tensors& t) const {
  Ops& ops = step.ops;
  ops.linear(*qk_, x, t.qk);
  const std::int64_t dim = config_.head_dim;
  const std::int64_t q_width = config_.num_heads * dim;
  const TensorView q = heads(columns(t.qk, 0, q_width), dim);
  const TensorView k = columns(t.qk, q_width, dim);
  ops.norm(q, q_norm_.params, q);
  ops.norm(k, k_norm_.params, k);
  if (rope_ >= 0) {
    const TensorView& cos_sin = step.cos_sin[static_cast<std::size_t>(rope_)];
    ops.rope(q, cos_sin, 0, interleaved_);
    ops.rope(heads(k, dim), cos_sin, 0, interleaved_);
  }
  return {.topk_indices = heads(t.lists, config_.topk),
          .index_q = narrowed(ops, q, t.q_narrow),
          .index_k = k};
}

}  // namespace attune::model
