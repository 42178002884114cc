#include "model/decoder_layer.hpp"

#include <array>
#include <string>

namespace attune::model {

DecoderLayer::DecoderLayer(Loader& loader, int layer)
    : hidden_(loader.config().hidden_size),
      residual_multiplier_(static_cast<float>(loader.config().residual_multiplier)),
      parallel_(loader.config().norm_placement == NormPlacement::parallel) {
  set_mix(loader.config(), layer);
  const ModelConfig& config = loader.config();
  // OLMo-Hybrid norms attention layers after each branch, and linear ones before.
  const bool linear_before =
      config.norm_placement == NormPlacement::post && config.linear_of(layer) != nullptr;
  const NormPlacement placement = linear_before ? NormPlacement::pre : config.norm_placement;
  mixer_.part = make_mixer(loader, layer);
  feed_forward_.part = make_feed_forward(loader, layer);
  const std::string prefix = loader.layer(layer);
  const std::string sub = loader.sublayer(layer);
  const auto load = [&](bool& present, Norm& norm, std::initializer_list<std::string_view> names) {
    present = true;
    norm = loader.norm(loader.pick(prefix, names), hidden_);
  };
  const bool before = placement != NormPlacement::post;
  const bool after = placement == NormPlacement::post || placement == NormPlacement::sandwich;
  if (mixer_.part) {
    if (before)
      load(mixer_.norm_before, mixer_.before,
           {"input_layernorm" + sub, "operator_norm", "attention_layer_norm", "attn_norm", "norm"});
    if (after)
      load(mixer_.norm_after, mixer_.after, {"post_attention_layernorm", "feedforward_layer_norm"});
  }
  if (feed_forward_.part && !parallel_) {
    if (placement == NormPlacement::sandwich) {
      load(feed_forward_.norm_before, feed_forward_.before, {"pre_feedforward_layernorm"});
    } else if (before) {
      load(feed_forward_.norm_before, feed_forward_.before,
           {"post_attention_layernorm" + sub, "ffn_norm", "pre_ff_layernorm",
            "feedforward_layer_norm", "norm"});
    }
    if (after) load(feed_forward_.norm_after, feed_forward_.after, {"post_feedforward_layernorm"});
  }
  if (config.residual_scaling) {
    mixer_.scaling.emplace(loader, prefix + "post_attention_residual_scale.", hidden_);
    feed_forward_.scaling.emplace(loader, prefix + "post_mlp_residual_scale.", hidden_);
  }
  if (config.hyper_connections > 0) {
    mixer_.hyper.emplace(loader, prefix + "hc_attn_");
    feed_forward_.hyper.emplace(loader, prefix + "hc_ffn_");
  }
  if (loader.config().per_layer_input_size > 0) per_layer_.emplace(loader, layer);
}

// MiniMax: what is added to is the normed input, and both sides have factors.
void DecoderLayer::set_mix(const ModelConfig& config, int layer) {
  const auto mix = [&](Branch& branch, const std::array<double, 2>& factors) {
    branch.normed_residual = config.residual_after_norm;
    branch.residual_factor = static_cast<float>(factors[0]);
    branch.factor = residual_multiplier_ * static_cast<float>(factors[1]);
  };
  mix(mixer_,
      config.linear_of(layer) != nullptr ? config.linear_attention_mix : config.full_attention_mix);
  mix(feed_forward_, config.mlp_mix);
}

void DecoderLayer::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)memory.take(DType::f32, {num_tokens, hidden_});
  (void)memory.take(DType::f32, {num_tokens, hidden_});
  if (mixer_.hyper) (void)mixer_.hyper->take(memory, num_tokens);
  if (mixer_.part) mixer_.part->lay_out(memory, num_tokens);
  if (feed_forward_.part) feed_forward_.part->lay_out(memory, num_tokens);
  if (per_layer_) per_layer_->lay_out(memory, num_tokens);
}

Status DecoderLayer::forward(Step& step, const TensorView& x) const {
  if (parallel_) return add_parallel(step, x);
  if (mixer_.hyper) return connect(step, x);
  const auto frame = step.memory.frame();
  const TensorView out = step.memory.take(DType::f32, {step.num_tokens, hidden_});
  const TensorView room = step.memory.take(DType::f32, {step.num_tokens, hidden_});
  const bool in_one_pass = mixer_.part && mixer_.adds_plainly() && feed_forward_.norm_before;
  if (Status s = run_branch(step, mixer_, x, room, out); !s.ok()) return s;
  if (in_one_pass) {
    step.ops.add_norm(out, mixer_.factor, x, feed_forward_.before.params,
                      input_of(step, feed_forward_, room));
  } else {
    add_branch(step, mixer_, out, x);
  }
  if (Status s = run_branch(step, feed_forward_, x, room, out, in_one_pass); !s.ok()) return s;
  add_branch(step, feed_forward_, out, x);
  if (per_layer_) per_layer_->forward(step, x);
  return {};
}

// Products read it, and what follows a MiniMax branch.
TensorView DecoderLayer::input_of(const Step& step, const Branch& branch, const TensorView& room) {
  const DType dtype = branch.normed_residual ? DType::f32 : step.ops.product_dtype();
  return TensorView::dense(room.data, dtype, {room.shape[0], room.shape[1]});
}

Status DecoderLayer::run_branch(Step& step, const Branch& branch, const TensorView& x,
                                const TensorView& room, const TensorView& out, bool normed) const {
  if (!branch.part) return {};
  TensorView input = x;
  if (branch.norm_before) {
    input = input_of(step, branch, room);
    if (!normed) step.ops.norm(x, branch.before.params, input);
  }
  if (Status s = branch.part->forward(step, input, out); !s.ok()) return s;
  if (branch.norm_after) step.ops.norm(out, branch.after.params, out);
  if (branch.normed_residual) step.ops.convert(input, x);
  return {};
}

void DecoderLayer::add_branch(Step& step, const Branch& branch, const TensorView& out,
                              const TensorView& x) const {
  if (!branch.part) return;
  if (branch.scaling) {
    branch.scaling->branch.apply(step.ops, out);
    branch.scaling->residual.apply(step.ops, x);
  }
  if (branch.residual_factor != 1.0f) step.ops.scale(x, branch.residual_factor, x);
  step.ops.add(out, branch.factor, x);
}

Status DecoderLayer::connect(Step& step, const TensorView& streams) const {
  const auto frame = step.memory.frame();
  const TensorView out = step.memory.take(DType::f32, {step.num_tokens, hidden_});
  const TensorView room = step.memory.take(DType::f32, {step.num_tokens, hidden_});
  const HyperConnection::Tensors t = mixer_.hyper->take(step.memory, step.num_tokens);
  for (const Branch* branch : {&mixer_, &feed_forward_}) {
    // `out` is the branch's input until it is its output.
    if (Status s = branch->hyper->collapse(step.ops, streams, t, out); !s.ok()) return s;
    if (Status s = run_branch(step, *branch, out, room, out); !s.ok()) return s;
    if (Status s = branch->hyper->expand(step.ops, out, t, streams); !s.ok()) return s;
  }
  return {};
}

// Cohere (and GPT-J before it): both branches read the same norm of the same input.
Status DecoderLayer::add_parallel(Step& step, const TensorView& x) const {
  const auto frame = step.memory.frame();
  const TensorView out = step.memory.take(DType::f32, {step.num_tokens, hidden_});
  const TensorView input =
      input_of(step, mixer_, step.memory.take(DType::f32, {step.num_tokens, hidden_}));
  step.ops.norm(x, mixer_.before.params, input);
  for (const Branch* branch : {&mixer_, &feed_forward_}) {
    if (!branch->part) continue;
    if (Status s = branch->part->forward(step, input, out); !s.ok()) return s;
    step.ops.add(out, residual_multiplier_, x);
  }
  return {};
}

}  // namespace attune::model
