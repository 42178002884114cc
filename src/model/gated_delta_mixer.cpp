#include "model/gated_delta_mixer.hpp"

#include <array>
#include <vector>

namespace attune::model {
namespace {

constexpr float kOlmoNormEps = 1e-5f;  // OLMo-Hybrid's output norm does not follow rms_norm_eps

}  // namespace

GatedDeltaMixer::GatedDeltaMixer(Loader& loader, int layer)
    : layer_(loader, layer), config_(*loader.config().linear_of(layer)) {
  const std::string layer_prefix = loader.layer(layer);
  const std::string prefix =
      layer_prefix +
      (loader.has(layer_prefix + "linear_attn.A_log") ? "linear_attn." : "self_attn.");
  const std::int64_t hidden = loader.config().hidden_size;
  if (loader.has(prefix + "in_proj_qkvz.weight")) {
    load_fused(loader, prefix);
  } else {
    load_separate(loader, prefix);
  }
  std::vector<std::string> convolutions{prefix + "conv1d"};
  if (loader.has(prefix + "q_conv1d.weight"))
    convolutions = {prefix + "q_conv1d", prefix + "k_conv1d", prefix + "v_conv1d"};
  convolution_ = ConvolutionWeights(loader, convolutions, config_);
  a_log_ = loader.flat(prefix + "A_log", config_.num_v_heads);
  dt_bias_ = loader.flat(prefix + "dt_bias", decay_.first == nullptr ? 0 : decay_.rows());
  norm_ = loader.norm(loader.pick(prefix, {"norm", "o_norm"}), config_.head_dim_v, NormKind::rms);
  if (loader.config().model_type == "olmo_hybrid") norm_.params.eps = kOlmoNormEps;
  output_ = loader.linear({loader.pick(prefix, {"out_proj", "o_proj"}), hidden},
                          static_cast<std::int64_t>(config_.num_v_heads) * config_.head_dim_v);
}

// Qwen3-Next keeps one matrix whose rows are grouped by key head: q, k, then that head's values and
// gates. Taken apart here into all of q, all of k, all of v, as the convolution wants them.
void GatedDeltaMixer::load_fused(Loader& loader, const std::string& prefix) {
  const std::int64_t hidden = loader.config().hidden_size;
  const std::int64_t ratio = config_.num_v_heads / config_.num_k_heads;
  const std::int64_t dk = config_.head_dim_k;
  const std::int64_t values = ratio * config_.head_dim_v;
  const std::int64_t group = 2 * dk + 2 * values;
  const WeightView qkvz =
      loader.view(prefix + "in_proj_qkvz.weight", {config_.num_k_heads * group, hidden});
  const WeightView ba =
      loader.view(prefix + "in_proj_ba.weight", {2L * config_.num_v_heads, hidden});
  if (!loader.status().ok()) return;
  const auto each_head = [&](const WeightView& matrix, std::int64_t stride, std::int64_t first,
                             std::int64_t count, std::vector<WeightView>& out) {
    for (std::int64_t h = 0; h < config_.num_k_heads; ++h)
      out.push_back(matrix.row_range(h * stride + first, count));
  };
  std::vector<WeightView> qkv;
  std::vector<WeightView> gate;
  std::vector<WeightView> beta;
  std::vector<WeightView> decay;
  each_head(qkvz, group, 0, dk, qkv);
  each_head(qkvz, group, dk, dk, qkv);
  each_head(qkvz, group, 2 * dk, values, qkv);
  each_head(qkvz, group, 2 * dk + values, values, gate);
  each_head(ba, 2 * ratio, 0, ratio, beta);
  each_head(ba, 2 * ratio, ratio, ratio, decay);
  qkv_ = loader.linear(qkv);
  gate_.first = loader.linear(gate);
  beta_ = loader.linear(beta);
  decay_.first = loader.linear(decay);
}

void GatedDeltaMixer::load_separate(Loader& loader, const std::string& prefix) {
  const std::int64_t hidden = loader.config().hidden_size;
  const std::int64_t keys = static_cast<std::int64_t>(config_.num_k_heads) * config_.head_dim_k;
  const std::int64_t values = static_cast<std::int64_t>(config_.num_v_heads) * config_.head_dim_v;
  const bool kda = config_.variant == Variant::kda;
  if (loader.has(prefix + "in_proj_qkv.weight")) {
    qkv_ = loader.linear({prefix + "in_proj_qkv", 2 * keys + values}, hidden);
  } else {
    const std::array<Matrix, 3> stack{Matrix{prefix + "q_proj", keys},
                                      Matrix{prefix + "k_proj", keys},
                                      Matrix{prefix + "v_proj", values}};
    qkv_ = loader.linear(stack, hidden);
  }
  beta_ =
      loader.linear({loader.pick(prefix, {"in_proj_b", "b_proj"}), config_.num_v_heads}, hidden);
  // kda goes through a middle as wide as a head, unless the checkpoint has full-rank gates.
  const auto narrow = [&](Projection& p, std::string_view letter, std::int64_t width) {
    const std::string name = prefix + std::string(letter);
    if (loader.has(name + "_a_proj.weight")) {
      p.first = loader.linear({name + "_a_proj", config_.head_dim_k}, hidden);
      p.second = loader.linear({name + "_b_proj", width}, config_.head_dim_k);
    } else {
      p.first = loader.linear({name + "_proj", width}, hidden);
    }
  };
  if (kda) {
    narrow(decay_, "f", static_cast<std::int64_t>(config_.num_v_heads) * config_.head_dim_k);
    narrow(gate_, "g", values);
  } else {
    decay_.first =
        loader.linear({loader.pick(prefix, {"in_proj_a", "a_proj"}), config_.num_v_heads}, hidden);
    gate_.first = loader.linear({loader.pick(prefix, {"in_proj_z", "g_proj"}), values}, hidden);
  }
}

void GatedDeltaMixer::Projection::run(Ops& ops, const TensorView& x, const TensorView& mid,
                                      const TensorView& out) const {
  if (!second) {
    ops.linear(*first, x, out);
    return;
  }
  ops.linear(*first, x, mid);
  ops.linear(*second, mid, out);
}

GatedDeltaMixer::Tensors GatedDeltaMixer::take(StepMemory& memory, std::int64_t n) const {
  Tensors t;
  t.qkv = memory.take(DType::f32, {n, qkv_->rows()});
  t.beta = memory.take(DType::f32, {n, beta_->rows()});
  t.decay = memory.take(DType::f32, {n, decay_.rows()});
  t.gate = memory.take(DType::f32, {n, gate_.rows()});
  if (decay_.second) t.decay_mid = memory.take(DType::f32, {n, decay_.middle()});
  if (gate_.second) t.gate_mid = memory.take(DType::f32, {n, gate_.middle()});
  t.o = memory.take(DType::f32, {n, output_->columns()});
  return t;
}

void GatedDeltaMixer::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
  layer_.lay_out(memory, num_tokens);
}

Status GatedDeltaMixer::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  Ops& ops = step.ops;
  ops.linear(*qkv_, x, t.qkv);
  ops.linear(*beta_, x, t.beta);
  decay_.run(ops, x, t.decay_mid, t.decay);
  gate_.run(ops, x, t.gate_mid, t.gate);

  LinearCall call;
  call.conv_input = t.qkv;
  convolution_.put_into(call);
  call.gate = t.decay;
  call.beta = t.beta;
  call.a_log = static_cast<const float*>(a_log_.data());
  call.dt_bias = static_cast<const float*>(dt_bias_.data());
  call.beta_scale = config_.allow_negative_eigenvalues ? 2.0f : 1.0f;
  call.gate_lower_bound = static_cast<float>(config_.gate_lower_bound);
  if (Status s = layer_.run(step, call, t.o); !s.ok()) return s;

  const TensorView o = heads(t.o, config_.head_dim_v);
  ops.norm(o, norm_.params, o);
  if (config_.variant == Variant::kda) {
    ops.sigmoid_gate(t.o, t.gate, t.o);
  } else {
    ops.activation(t.gate, Activation::silu, t.gate);
    ops.multiply(t.o, t.gate, t.o);
  }
  ops.linear(*output_, t.o, out);
  return {};
}

}  // namespace attune::model
