#include "model/moe_feed_forward.hpp"

#include <array>
#include <span>
#include <string>
#include <vector>

namespace attune::model {
namespace {

/// The views that ExpertParts points into.
struct ExpertViews {
  std::vector<std::array<WeightView, 2>> gate_up;  ///< stacked gate and up, or one matrix of both
  std::vector<WeightView> gate_up_bias;
  std::vector<WeightView> down;
  std::vector<WeightView> down_bias;
  std::size_t matrices_per_gate_up = 2;
};

/// One matrix an expert: experts.3.gate_proj.weight, or Mixtral's w1, w3 and w2.
ExpertViews separate_experts(Loader& loader, const std::string& prefix, const MoeConfig& moe,
                             std::int64_t hidden) {
  ExpertViews views;
  for (int e = 0; e < moe.num_experts; ++e) {
    const std::string expert = prefix + "experts." + std::to_string(e) + ".";
    const std::int64_t width = moe.intermediate_size;
    views.gate_up.push_back(
        {loader.view(loader.pick(expert, {"gate_proj", "w1"}) + ".weight", {width, hidden}),
         loader.view(loader.pick(expert, {"up_proj", "w3"}) + ".weight", {width, hidden})});
    views.down.push_back(
        loader.view(loader.pick(expert, {"down_proj", "w2"}) + ".weight", {hidden, width}));
  }
  return views;
}

WeightView slice(const WeightView& stack, std::int64_t expert) {
  return stack.row_range(expert * stack.shape[1], stack.shape[1]);
}

/// All experts in one tensor of three dimensions. gpt-oss and Llama-4 keep [in, out] matrices, the
/// others [out, in].
ExpertViews stacked_experts(Loader& loader, const std::string& prefix, const MoeConfig& moe,
                            std::int64_t hidden) {
  const std::int64_t n = moe.num_experts;
  const std::int64_t width = moe.intermediate_size;
  const bool in_out =
      loader.config().model_type == "gpt_oss" || loader.config().model_type.starts_with("llama4");
  const bool granite = loader.has(prefix + "input_linear.weight");
  const std::string up_name = prefix + (granite ? "input_linear.weight" : "experts.gate_up_proj");
  const std::string down_name = prefix + (granite ? "output_linear.weight" : "experts.down_proj");
  const WeightView up = in_out ? loader.view(up_name, {n, hidden, 2 * width})
                               : loader.view(up_name, {n, 2 * width, hidden});
  const WeightView down = in_out ? loader.view(down_name, {n, width, hidden})
                                 : loader.view(down_name, {n, hidden, width});
  ExpertViews views;
  views.matrices_per_gate_up = 1;
  if (!loader.status().ok()) return views;
  const bool biased = loader.has(up_name + "_bias");
  WeightView up_bias;
  WeightView down_bias;
  if (biased) {
    up_bias = loader.view(up_name + "_bias", {n, 2 * width});
    down_bias = loader.view(down_name + "_bias", {n, hidden});
    if (!loader.status().ok()) return views;
  }
  const auto vector_row = [](const WeightView& matrix, std::int64_t row) {
    WeightView view = matrix.row_range(row, 1);
    view.rank = 1;
    view.shape = {matrix.columns()};
    return view;
  };
  for (std::int64_t e = 0; e < n; ++e) {
    const WeightView one_up = slice(up, e);
    const WeightView one_down = slice(down, e);
    views.gate_up.push_back({in_out ? loader.transposed(one_up) : one_up, WeightView{}});
    views.down.push_back(in_out ? loader.transposed(one_down) : one_down);
    if (!biased) continue;
    views.gate_up_bias.push_back(vector_row(up_bias, e));
    views.down_bias.push_back(vector_row(down_bias, e));
  }
  return views;
}

std::unique_ptr<Experts> load_experts(Loader& loader, const std::string& prefix) {
  const ModelConfig& config = loader.config();
  const bool stacked =
      loader.has(prefix + "experts.gate_up_proj") || loader.has(prefix + "input_linear.weight");
  const ExpertViews views = stacked
                                ? stacked_experts(loader, prefix, config.moe, config.hidden_size)
                                : separate_experts(loader, prefix, config.moe, config.hidden_size);
  if (!loader.status().ok()) return nullptr;
  std::vector<LinearParts> gate_up;
  std::vector<LinearParts> down;
  for (std::size_t e = 0; e < views.down.size(); ++e) {
    LinearParts& up = gate_up.emplace_back();
    up.weights = std::span(views.gate_up[e]).first(views.matrices_per_gate_up);
    LinearParts& out = down.emplace_back();
    out.weights = std::span(&views.down[e], 1);
    if (views.gate_up_bias.empty()) continue;
    up.biases = std::span(&views.gate_up_bias[e], 1);
    out.biases = std::span(&views.down_bias[e], 1);
  }
  ActivationParams activation = activation_of(config);
  // gpt-oss alternates rows of gate and up; MiniMax-M3, of the same activation, stacks them.
  activation.interleaved = stacked && config.model_type == "gpt_oss";
  return loader.experts({.gate_up = gate_up, .down = down, .activation = activation});
}

}  // namespace

MoeFeedForward::MoeFeedForward(Loader& loader, int layer) : config_(loader.config().moe) {
  if (layer < config_.num_hash_layers) {
    loader.fail(unsupported("layer " + std::to_string(layer) + " routes by token id (" +
                            std::to_string(config_.num_hash_layers) +
                            " hash layers): tables of integers are not read yet"));
    return;
  }
  const std::string prefix = feed_forward_prefix(loader, layer);
  const std::int64_t hidden = loader.config().hidden_size;
  const std::string router =
      loader.pick(prefix, {"gate", "router", "router.layer", "router.classifier"});
  const std::int64_t choices = config_.num_choices();
  // DeepSeek-V4 calls the bias of the choice that of the router, which has none.
  const bool bias_of_choice = config_.selection_bias && loader.has(router + ".bias");
  if (loader.config().router_hidden_size > 0) {
    router_network_.emplace(loader, router + ".", choices);
  } else if (bias_of_choice) {
    const WeightView weight = loader.view(router + ".weight", {choices, hidden});
    router_ = loader.linear(std::span(&weight, 1));
  } else {
    router_ = loader.linear({router, choices}, hidden);
  }
  if (config_.selection_bias) {
    selection_bias_ = loader.vector(
        bias_of_choice ? router + ".bias"
        : loader.has(router + ".e_score_correction_bias")
            ? router + ".e_score_correction_bias"
            : loader.pick(prefix, {"e_score_correction_bias", "router.e_score_correction_bias",
                                   "expert_bias", "gate.balancing_biases"}),
        choices);
  }
  experts_ = load_experts(loader, prefix);
  if (config_.shared_intermediate_size > 0) {
    std::string folder = prefix + "shared_experts.";
    if (loader.has(prefix + "shared_expert.down_proj.weight")) folder = prefix + "shared_expert.";
    const std::string beside = loader.layer(layer) + "shared_mlp.";  // Granite
    if (loader.has(beside + "output_linear.weight")) folder = beside;
    shared_.emplace(loader, folder, config_.shared_intermediate_size);
  }
  if (config_.shared_gate) shared_gate_ = loader.linear({prefix + "shared_expert_gate", 1}, hidden);
}

MoeFeedForward::Tensors MoeFeedForward::take(StepMemory& memory, std::int64_t num_tokens) const {
  Tensors t;
  t.logits = memory.take(DType::f32, {num_tokens, config_.num_choices()});
  t.ids = memory.take(DType::i32, {num_tokens, config_.experts_per_token});
  t.weights = memory.take(DType::f32, {num_tokens, config_.experts_per_token});
  if (shared_gate_) t.gate = memory.take(DType::f32, {num_tokens, 1});
  return t;
}

void MoeFeedForward::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
  if (shared_) shared_->lay_out(memory, num_tokens);
  if (router_network_) router_network_->lay_out(memory, num_tokens);
}

Status MoeFeedForward::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  Ops& ops = step.ops;
  if (shared_) {
    if (Status s = shared_->forward(step, x, out); !s.ok()) return s;
    if (shared_gate_) {
      ops.linear(*shared_gate_, x, t.gate);
      ops.sigmoid_gate(out, t.gate, out);
    }
  } else {
    ops.scale(x, 0.0f, out);
  }
  if (router_network_) {
    router_network_->forward(step, x, t.logits);
  } else {
    ops.linear(*router_, x, t.logits);
  }
  ops.route(config_, t.logits, static_cast<const float*>(selection_bias_.data()), t.ids, t.weights);
  ops.experts(*experts_, x, t.ids, t.weights, config_.scale_input, out);
  if (config_.num_zero_experts > 0)
    ops.identity_experts(x, t.ids, t.weights, config_.num_experts, out);
  return {};
}

}  // namespace attune::model
