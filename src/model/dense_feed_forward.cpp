#include "model/dense_feed_forward.hpp"

#include <array>

namespace attune::model {

ActivationParams activation_of(const ModelConfig& config) {
  return {.kind = config.activation,
          .interleaved = false,
          .limit = static_cast<float>(config.swiglu_limit),
          .alpha = static_cast<float>(config.swiglu_alpha)};
}

std::string feed_forward_prefix(const Loader& loader, int layer) {
  const std::string prefix = loader.layer(layer);
  constexpr std::array<std::string_view, 6> kFolders{
      "mlp.", "feed_forward.", "block_sparse_moe.", "shared_mlp.", "mixer.", "ffn."};
  constexpr std::array<std::string_view, 9> kMembers{
      "down_proj",          "w2",     "gate_up_proj", "fc2",
      "output_linear",      "router", "gate",         "experts.down_proj",
      "experts.0.down_proj"};
  for (std::string_view folder : kFolders)
    for (std::string_view member : kMembers) {
      const std::string name = prefix + std::string(folder) + std::string(member);
      if (loader.has(name + ".weight") || loader.has(name)) return prefix + std::string(folder);
    }
  return prefix + std::string(kFolders[0]);
}

DenseFeedForward::DenseFeedForward(Loader& loader, const std::string& prefix,
                                   std::int64_t intermediate)
    : gated_(loader.config().gated_mlp), activation_(activation_of(loader.config())) {
  const std::int64_t hidden = loader.config().hidden_size;
  const Bias bias = loader.config().mlp_bias ? Bias::required : Bias::if_present;
  const std::string both = loader.pick(prefix, {"gate_up_proj", "input_linear"});
  if (loader.has(both + ".weight")) {
    up_ = loader.linear({both, 2 * intermediate}, hidden, bias);
  } else if (gated_) {
    const std::array<Matrix, 2> stack{
        Matrix{loader.pick(prefix, {"gate_proj", "w1"}), intermediate},
        Matrix{loader.pick(prefix, {"up_proj", "w3"}), intermediate}};
    up_ = loader.linear(stack, hidden, bias);
  } else {
    up_ =
        loader.linear({loader.pick(prefix, {"up_proj", "fc1", "intermediate.dense"}), intermediate},
                      hidden, bias);
  }
  down_ = loader.linear(
      {loader.pick(prefix, {"down_proj", "w2", "fc2", "output.dense", "output_linear"}), hidden},
      intermediate, bias);
}

DenseFeedForward::Tensors DenseFeedForward::take(StepMemory& memory,
                                                 std::int64_t num_tokens) const {
  Tensors t;
  t.up = memory.take(DType::f32, {num_tokens, up_->rows()});
  t.hidden = gated_ ? memory.take(DType::f32, {num_tokens, down_->columns()}) : t.up;
  return t;
}

void DenseFeedForward::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
}

Status DenseFeedForward::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  step.ops.linear(*up_, x, t.up);
  if (gated_) {
    const TensorView hidden = TensorView::dense(t.hidden.data, step.ops.product_dtype(),
                                                {t.hidden.shape[0], t.hidden.shape[1]});
    step.ops.gated_activation(t.up, activation_, hidden);
    step.ops.linear(*down_, hidden, out);
  } else {
    step.ops.activation(t.up, activation_.kind, t.hidden);
    step.ops.linear(*down_, t.hidden, out);
  }
  return {};
}

}  // namespace attune::model
