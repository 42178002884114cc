#include "model/per_layer_inputs.hpp"

#include <cmath>
#include <string>

namespace attune::model {

PerLayerInputs::PerLayerInputs(Loader& loader)
    : size_(loader.config().per_layer_input_size),
      width_(size_ * loader.config().num_layers()),
      projection_scale_(
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(loader.config().hidden_size)))) {
  const std::string& root = loader.root();
  table_ =
      loader.table({root + "embed_tokens_per_layer", loader.config().per_layer_vocab_size}, width_);
  projection_ =
      loader.linear({root + "per_layer_model_projection", width_}, loader.config().hidden_size);
  norm_ = loader.norm(root + "per_layer_projection_norm", size_);
}

TensorView PerLayerInputs::take(StepMemory& memory, std::int64_t num_tokens) const {
  return memory.take(DType::f32, {num_tokens, width_});
}

void PerLayerInputs::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
}

void PerLayerInputs::fill(Ops& ops, StepMemory& memory, const TensorView& tokens,
                          const TensorView& x, const TensorView& out) const {
  const auto frame = memory.frame();
  const TensorView looked_up = take(memory, x.shape[0]);
  ops.embedding(*table_, tokens, static_cast<float>(std::sqrt(static_cast<double>(size_))),
                looked_up);
  ops.linear(*projection_, x, out);
  ops.scale(out, projection_scale_, out);
  ops.norm(heads(out, size_), norm_.params, heads(out, size_));
  ops.add(looked_up, 1.0f, out);
  ops.scale(out, static_cast<float>(std::sqrt(0.5)), out);
}

PerLayerBranch::PerLayerBranch(Loader& loader, int layer)
    : layer_(layer),
      size_(loader.config().per_layer_input_size),
      activation_(loader.config().activation) {
  const std::string prefix = loader.layer(layer);
  const std::int64_t hidden = loader.config().hidden_size;
  gate_ = loader.linear({prefix + "per_layer_input_gate", size_}, hidden);
  projection_ = loader.linear({prefix + "per_layer_projection", hidden}, size_);
  norm_ = loader.norm(prefix + "post_per_layer_input_norm", hidden);
  scalar_ = loader.has(prefix + "layer_scalar") ? loader.scalar(prefix + "layer_scalar") : 1.0f;
}

PerLayerBranch::Tensors PerLayerBranch::take(StepMemory& memory, std::int64_t num_tokens) const {
  return {.gate = memory.take(DType::f32, {num_tokens, size_}),
          .out = memory.take(DType::f32, {num_tokens, projection_->rows()})};
}

void PerLayerBranch::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
}

void PerLayerBranch::forward(Step& step, const TensorView& x) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  step.ops.linear(*gate_, x, t.gate);
  step.ops.activation(t.gate, activation_, t.gate);
  step.ops.multiply(t.gate, columns(step.per_layer_inputs, layer_ * size_, size_), t.gate);
  step.ops.linear(*projection_, t.gate, t.out);
  step.ops.norm(t.out, norm_.params, t.out);
  step.ops.add(t.out, 1.0f, x);
  if (scalar_ != 1.0f) step.ops.scale(x, scalar_, x);
}

}  // namespace attune::model
