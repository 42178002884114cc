#include "model/short_conv_mixer.hpp"

#include <string>

namespace attune::model {

ShortConvMixer::ShortConvMixer(Loader& loader, int layer)
    : layer_(loader, layer), channels_(loader.config().linear_of(layer)->conv_dim) {
  const LinearConfig& config = *loader.config().linear_of(layer);
  const std::string prefix = loader.layer(layer) + "conv.";
  const std::int64_t hidden = loader.config().hidden_size;
  const Bias bias = config.proj_bias ? Bias::required : Bias::if_present;
  input_ = loader.linear({prefix + "in_proj", 3 * channels_}, hidden, bias);
  output_ = loader.linear({prefix + "out_proj", hidden}, channels_, bias);
  const std::string convolution = prefix + "conv";
  convolution_ = ConvolutionWeights(loader, std::span(&convolution, 1), config);
}

ShortConvMixer::Tensors ShortConvMixer::take(StepMemory& memory, std::int64_t n) const {
  Tensors t;
  t.projected = memory.take(DType::f32, {n, 3 * channels_});
  t.o = memory.take(DType::f32, {n, channels_});
  return t;
}

void ShortConvMixer::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
  layer_.lay_out(memory, num_tokens);
}

Status ShortConvMixer::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  Ops& ops = step.ops;
  ops.linear(*input_, x, t.projected);
  const TensorView b = columns(t.projected, 0, channels_);
  const TensorView c = columns(t.projected, channels_, channels_);
  const TensorView u = columns(t.projected, 2 * channels_, channels_);
  ops.multiply(u, b, u);
  LinearCall call;
  call.conv_input = u;
  call.conv_silu = false;
  convolution_.put_into(call);
  if (Status s = layer_.run(step, call, t.o); !s.ok()) return s;
  ops.multiply(t.o, c, t.o);
  ops.linear(*output_, t.o, out);
  return {};
}

}  // namespace attune::model
