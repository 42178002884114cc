#include "model/mamba2_mixer.hpp"

#include <algorithm>
#include <string>

namespace attune::model {
Mamba2Mixer::Mamba2Mixer(Loader& loader, int layer)
    : layer_(loader, layer),
      config_(*loader.config().linear_of(layer)),
      inner_(static_cast<std::int64_t>(config_.num_v_heads) * config_.head_dim_v),
      norm_width_(inner_ / config_.norm_groups),
      input_scale_(static_cast<float>(loader.config().ssm_in_multiplier)) {
  const std::string layer_prefix = loader.layer(layer);
  const std::string prefix =
      layer_prefix + (loader.has(layer_prefix + "mamba.A_log") ? "mamba." : "mixer.");
  const std::int64_t hidden = loader.config().hidden_size;
  const Bias bias = config_.proj_bias ? Bias::required : Bias::if_present;
  input_ = loader.linear({prefix + "in_proj", inner_ + config_.conv_dim + config_.num_v_heads},
                         hidden, bias);
  output_ = loader.linear({prefix + "out_proj", hidden}, inner_, bias);
  const std::string convolution = prefix + "conv1d";
  convolution_ = ConvolutionWeights(loader, std::span(&convolution, 1), config_);
  a_log_ = loader.flat(prefix + "A_log", config_.num_v_heads);
  dt_bias_ = loader.flat(prefix + "dt_bias", config_.num_v_heads);
  d_skip_ = loader.flat(prefix + "D", config_.num_v_heads);
  if (config_.gated_norm) norm_ = loader.norm(prefix + "norm", inner_, NormKind::rms);
}

Mamba2Mixer::Tensors Mamba2Mixer::take(StepMemory& memory, std::int64_t n) const {
  Tensors t;
  t.projected = memory.take(DType::f32, {n, input_->rows()});
  t.o = memory.take(DType::f32, {n, inner_});
  return t;
}

void Mamba2Mixer::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
  layer_.lay_out(memory, num_tokens);
}

// Falcon-H1's multipliers of z, x, B, C and dt; the one on the input is linear too and joins them.
void Mamba2Mixer::scale_segments(Ops& ops, const TensorView& projected) const {
  const std::int64_t bc = static_cast<std::int64_t>(config_.num_k_heads) * config_.head_dim_k;
  const std::int64_t widths[] = {inner_, inner_, bc, bc, config_.num_v_heads};
  std::int64_t first = 0;
  for (std::size_t i = 0; i < std::size(widths); ++i) {
    const float factor = input_scale_ * static_cast<float>(config_.ssm_multipliers[i]);
    const TensorView part = columns(projected, first, widths[i]);
    if (factor != 1.0f) ops.scale(part, factor, part);
    first += widths[i];
  }
}

void Mamba2Mixer::norm(Ops& ops, const TensorView& o) const {
  for (std::int64_t first = 0; first < inner_; first += norm_width_) {
    NormParams params = norm_.params;
    params.weight += first;
    const TensorView group = columns(o, first, norm_width_);
    ops.norm(group, params, group);
  }
}

Status Mamba2Mixer::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  Ops& ops = step.ops;
  ops.linear(*input_, x, t.projected);
  scale_segments(ops, t.projected);
  const TensorView z = columns(t.projected, 0, inner_);

  LinearCall call;
  call.conv_input = columns(t.projected, inner_, config_.conv_dim);
  convolution_.put_into(call);
  call.gate = columns(t.projected, inner_ + config_.conv_dim, config_.num_v_heads);
  call.a_log = static_cast<const float*>(a_log_.data());
  call.dt_bias = static_cast<const float*>(dt_bias_.data());
  call.d_skip = static_cast<const float*>(d_skip_.data());
  call.dt_min = static_cast<float>(config_.time_step_min);
  call.dt_max = static_cast<float>(std::min(config_.time_step_max, 3.0e38));
  if (Status s = layer_.run(step, call, t.o); !s.ok()) return s;

  if (config_.gated_norm && config_.norm_before_gate) norm(ops, t.o);
  ops.activation(z, Activation::silu, z);
  ops.multiply(t.o, z, t.o);
  if (config_.gated_norm && !config_.norm_before_gate) norm(ops, t.o);
  ops.linear(*output_, t.o, out);
  return {};
}

}  // namespace attune::model
