#include "model/hyper_connection.hpp"

#include <span>

#include "model/attention_call.hpp"

namespace attune::model {

HyperConnection::HyperConnection(Loader& loader, const std::string& prefix, bool collapses_only)
    : streams_(loader.config().hyper_connections), hidden_(loader.config().hidden_size) {
  const std::int64_t rows = collapses_only ? streams_ : (2 + streams_) * streams_;
  const WeightView fn = loader.view(prefix + "fn", {rows, streams_ * hidden_});
  projection_ = loader.linear(std::span(&fn, 1));
  base_ = loader.vector(prefix + "base", rows);
  scale_ = loader.vector(prefix + "scale", collapses_only ? 1 : 3);
  unit_.eps = static_cast<float>(loader.config().norm_eps);
  params_ = {.streams = loader.config().hyper_connections,
             .iterations = loader.config().hyper_sinkhorn_iterations,
             .eps = static_cast<float>(loader.config().hyper_eps),
             .scale = static_cast<const float*>(scale_.data()),
             .base = static_cast<const float*>(base_.data())};
}

HyperConnection::Tensors HyperConnection::take(StepMemory& memory, std::int64_t num_tokens) const {
  Tensors t;
  t.normed = memory.take(DType::f32, {num_tokens, streams_ * hidden_});
  t.weights = memory.take(DType::f32, {num_tokens, projection_->rows()});
  return t;
}

Status HyperConnection::collapse(Ops& ops, const TensorView& streams, const Tensors& t,
                                 const TensorView& out) const {
  ops.norm(streams, unit_, t.normed);
  ops.linear(*projection_, t.normed, t.weights);
  if (Status s = ops.hyper_weights(params_, t.weights); !s.ok()) return s;
  return ops.hyper_collapse(streams, columns(t.weights, 0, streams_), out);
}

Status HyperConnection::expand(Ops& ops, const TensorView& branch, const Tensors& t,
                               const TensorView& streams) const {
  return ops.hyper_expand(branch, columns(t.weights, streams_, streams_),
                          columns(t.weights, 2 * streams_, streams_ * streams_), streams);
}

}  // namespace attune::model
