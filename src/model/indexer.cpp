#include "model/indexer.hpp"

#include <cmath>

#include "model/attention_call.hpp"

namespace attune::model {

Indexer::Indexer(Loader& loader, const AttentionConfig& config, DType q_dtype,
                 const std::string& prefix)
    : config_(config.indexer), dtype_(q_dtype), rope_(loader.ropes().rope_index(config.rope)) {
  const std::int64_t hidden = loader.config().hidden_size;
  const std::int64_t heads = config_.num_heads;
  q_ = loader.linear({prefix + "wq_b", heads * config_.head_dim}, config.q_lora_rank);
  k_ = loader.linear({prefix + "wk", config_.head_dim}, hidden);
  weights_ = loader.linear({prefix + "weights_proj", heads}, hidden);
  k_norm_ = loader.norm(prefix + "k_norm", config_.head_dim, NormKind::layer_norm);
  k_norm_.params.eps = 1e-6f;  // whatever the model's other norms have
}

Indexer::Tensors Indexer::take(StepMemory& memory, std::int64_t n) const {
  Tensors t;
  t.q = memory.take(DType::f32, {n, std::int64_t{config_.num_heads} * config_.head_dim});
  t.q_narrow = take_narrow(memory, dtype_, n, std::int64_t{config_.num_heads} * config_.head_dim);
  t.k = memory.take(DType::f32, {n, config_.head_dim});
  t.weights = memory.take(DType::f32, {n, config_.num_heads});
  return t;
}

void Indexer::project(Step& step, const TensorView& x, const TensorView& q_latent,
                      const Tensors& t) const {
  Ops& ops = step.ops;
  ops.linear(*q_, q_latent, t.q);
  ops.linear(*k_, x, t.k);
  ops.norm(t.k, k_norm_.params, t.k);
  ops.linear(*weights_, x, t.weights);
  const double size = static_cast<double>(config_.num_heads) * config_.head_dim;
  ops.scale(t.weights, static_cast<float>(1.0 / std::sqrt(size)), t.weights);
  const TensorView q = heads(t.q, config_.head_dim);
  if (rope_ >= 0) {
    const TensorView& cos_sin = step.cos_sin[static_cast<std::size_t>(rope_)];
    ops.rope(q, cos_sin, 0, config_.rope_interleaved);
    ops.rope(heads(t.k, config_.head_dim), cos_sin, 0, config_.rope_interleaved);
  }
  (void)narrowed(ops, q, t.q_narrow);
}

void Indexer::fill(const Tensors& t, std::int64_t first_row, std::int64_t num_rows,
                   SparseCall& call) const {
  const TensorView& q = t.q_narrow.rank == 0 ? t.q : t.q_narrow;
  call.index_q = heads(rows(q, first_row, num_rows), config_.head_dim);
  call.index_weights = rows(t.weights, first_row, num_rows);
  call.index_k = rows(t.k, first_row, num_rows);
}

}  // namespace attune::model
