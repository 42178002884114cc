#include "model/described_mixer.hpp"

#include <attune/linear_family.hpp>

namespace attune::model {

DescribedMixer::DescribedMixer(Loader& loader, int layer) : layer_(loader, layer) {
  const LinearConfig& c = *loader.config().linear_of(layer);
  const LinearFamilyLayers& names = *c.described;
  const std::string prefix = loader.layer(layer);
  const std::int64_t hidden = loader.config().hidden_size;
  const std::int64_t v_heads = c.num_v_heads;
  const std::int64_t keys = std::int64_t{c.num_k_heads} * c.head_dim_k;
  const std::int64_t gates = c.variant == Variant::kda ? v_heads * c.head_dim_k : v_heads;
  const bool convolves_alone = c.variant == Variant::short_conv;
  width_ = convolves_alone ? c.conv_dim : v_heads * c.head_dim_v;
  constants_.conv_silu = !convolves_alone;
  constants_.beta_scale = names.beta_scale;
  constants_.gate_lower_bound = names.gate_lower_bound;
  constants_.dt_min = names.dt_min;
  constants_.dt_max = names.dt_max;

  const auto input = [&](const std::string& name, TensorView LinearCall::*member,
                         std::int64_t width) {
    if (!name.empty())
      inputs_.push_back({member, width, loader.linear({prefix + name, width}, hidden)});
  };
  input(names.conv_input, &LinearCall::conv_input, c.conv_dim);
  input(names.q, &LinearCall::q, keys);
  input(names.k, &LinearCall::k, keys);
  input(names.v, &LinearCall::v, v_heads * c.head_dim_v);
  input(names.gate, &LinearCall::gate, gates);
  input(names.beta, &LinearCall::beta, v_heads);

  const auto numbers = [&](const std::string& name, const float* LinearCall::*member,
                           std::int64_t size) {
    if (!name.empty()) numbers_.push_back({member, loader.flat(prefix + name, size)});
  };
  numbers(names.conv_weight, &LinearCall::conv_weight, std::int64_t{c.conv_dim} * c.conv_kernel);
  numbers(names.conv_bias, &LinearCall::conv_bias, c.conv_dim);
  numbers(names.a_log, &LinearCall::a_log, v_heads);
  numbers(names.dt_bias, &LinearCall::dt_bias, gates);
  numbers(names.d_skip, &LinearCall::d_skip, v_heads);
  if (!names.slopes.empty())
    numbers_.push_back({&LinearCall::slopes, loader.numbers(names.slopes)});
  output_ = loader.linear({prefix + names.output, hidden}, width_);
}

void DescribedMixer::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  for (const Input& input : inputs_) (void)memory.take(DType::f32, {num_tokens, input.width});
  (void)memory.take(DType::f32, {num_tokens, width_});
  layer_.lay_out(memory, num_tokens);
}

Status DescribedMixer::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  LinearCall call = constants_;
  for (const Input& input : inputs_) {
    call.*input.member = step.memory.take(DType::f32, {step.num_tokens, input.width});
    step.ops.linear(*input.projection, x, call.*input.member);
  }
  for (const Numbers& numbers : numbers_)
    call.*numbers.member = static_cast<const float*>(numbers.values.data());
  const TensorView o = step.memory.take(DType::f32, {step.num_tokens, width_});
  if (Status s = layer_.run(step, call, o); !s.ok()) return s;
  step.ops.linear(*output_, o, out);
  return {};
}

}  // namespace attune::model
