#include "model/router_network.hpp"

namespace attune::model {

RouterNetwork::RouterNetwork(Loader& loader, const std::string& prefix, std::int64_t num_choices)
    : width_(loader.config().router_hidden_size) {
  const std::string network = prefix + "router_mlp.";
  down_ = loader.linear({prefix + "down_proj", width_}, loader.config().hidden_size);
  norm_ = loader.norm(network + "norm", width_);
  first_ = loader.linear({network + "fc1", width_}, width_);
  second_ = loader.linear({network + "fc2", width_}, width_);
  output_ = loader.linear({network + "out_proj", num_choices}, width_);
  if (loader.has(prefix + "router_states_scale"))
    state_scale_ = loader.vector(prefix + "router_states_scale", width_);
}

void RouterNetwork::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)memory.take(DType::f32, {num_tokens, width_});
  (void)memory.take(DType::f32, {num_tokens, width_});
}

void RouterNetwork::forward(Step& step, const TensorView& x, const TensorView& logits) const {
  const auto frame = step.memory.frame();
  const TensorView a = step.memory.take(DType::f32, {step.num_tokens, width_});
  const TensorView b = step.memory.take(DType::f32, {step.num_tokens, width_});
  const TensorView& states = step.router_states;
  Ops& ops = step.ops;
  ops.linear(*down_, x, a);
  if (state_scale_.data() != nullptr) {
    ops.multiply(states, row_of(state_scale_, states), states);
    ops.add(states, 1.0f, a);
  }
  ops.convert(a, states);
  ops.norm(a, norm_.params, a);
  ops.linear(*first_, a, b);
  ops.activation(b, Activation::gelu, b);
  ops.linear(*second_, b, a);
  ops.activation(a, Activation::gelu, a);
  ops.linear(*output_, a, logits);
}

}  // namespace attune::model
