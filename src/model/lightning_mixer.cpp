#include "model/lightning_mixer.hpp"

#include <cmath>
#include <string>
#include <vector>

namespace attune::model {
namespace {

/// The published slopes: ALiBi's geometric series, less in deeper layers. `layer` counts all layers
/// of the model.
std::vector<float> decay_slopes(int num_heads, int layer, int num_layers) {
  const double factor = 1.0 - layer / (num_layers - 1 + 1e-5) + 1e-5;
  std::vector<float> slopes;
  for (int h = 0; h < num_heads; ++h)
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * (h + 1) / num_heads) * factor));
  return slopes;
}

}  // namespace

LightningMixer::LightningMixer(Loader& loader, int layer)
    : layer_(loader, layer),
      width_(static_cast<std::int64_t>(loader.config().linear_of(layer)->num_v_heads) *
             loader.config().linear_of(layer)->head_dim_v) {
  const LinearConfig& config = *loader.config().linear_of(layer);
  const std::string prefix = loader.layer(layer) + "self_attn.";
  const std::int64_t hidden = loader.config().hidden_size;
  const std::int64_t dim = config.head_dim_k;
  // Rows are grouped by head: q, k, v of head 0, then of head 1 …
  const WeightView fused = loader.view(prefix + "qkv_proj.weight", {3 * width_, hidden});
  if (loader.status().ok()) {
    std::vector<WeightView> stack;
    for (int part = 0; part < 3; ++part)
      for (int h = 0; h < config.num_v_heads; ++h)
        stack.push_back(fused.row_range((3L * h + part) * dim, dim));
    qkv_ = loader.linear(stack);
  }
  gate_ = loader.linear({prefix + "output_gate", width_}, hidden);
  output_ = loader.linear({prefix + "out_proj", hidden}, width_);
  norm_ = loader.norm(prefix + "norm", width_);
  // The file has the slopes too, rounded to its dtype; the formula gives them exactly.
  const std::vector<float> slopes =
      decay_slopes(config.num_v_heads, layer, loader.config().num_layers());
  slopes_ = loader.numbers(slopes);
}

LightningMixer::Tensors LightningMixer::take(StepMemory& memory, std::int64_t n) const {
  Tensors t;
  t.qkv = memory.take(DType::f32, {n, 3 * width_});
  t.gate = memory.take(DType::f32, {n, width_});
  t.o = memory.take(DType::f32, {n, width_});
  return t;
}

void LightningMixer::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
  layer_.lay_out(memory, num_tokens);
}

Status LightningMixer::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  Ops& ops = step.ops;
  ops.linear(*qkv_, x, t.qkv);
  ops.activation(t.qkv, Activation::silu, t.qkv);
  LinearCall call;
  call.q = columns(t.qkv, 0, width_);
  call.k = columns(t.qkv, width_, width_);
  call.v = columns(t.qkv, 2 * width_, width_);
  call.slopes = static_cast<const float*>(slopes_.data());
  if (Status s = layer_.run(step, call, t.o); !s.ok()) return s;
  ops.norm(t.o, norm_.params, t.o);
  ops.linear(*gate_, x, t.gate);
  ops.sigmoid_gate(t.o, t.gate, t.o);
  ops.linear(*output_, t.o, out);
  return {};
}

}  // namespace attune::model
