#include "model/cca_mixer.hpp"

#include <algorithm>
#include <string>

#include "model/attention_call.hpp"

namespace attune::model {
namespace {

/// fp32 on the host; empty after a failure.
std::vector<float> read(Loader& loader, const std::string& name,
                        std::initializer_list<std::int64_t> shape) {
  const WeightView view = loader.view(name, shape);
  if (!loader.status().ok()) return {};
  std::vector<float> values(static_cast<std::size_t>(view.num_elements()));
  read_f32(view, values);
  return values;
}

}  // namespace

CcaMixer::CcaMixer(Loader& loader, int layer)
    : layer_(layer),
      group_(loader.attention_group(layer)),
      dtype_(loader.spec(group_).q_dtype),
      config_(*loader.config().attention_of(layer)),
      convolution_(loader, layer),
      taps_(config_.cca_time0 + config_.cca_time1 - 1),
      channels_(std::int64_t{config_.num_qo_heads + config_.num_kv_heads} * config_.head_dim_qk),
      delayed_(std::int64_t{config_.num_kv_heads} * config_.head_dim_vo / 2),
      rope_(loader.ropes().rope_index(config_.rope)) {
  const std::int64_t hidden = loader.config().hidden_size;
  const std::string attention = loader.layer(layer) + "self_attn.";
  const std::string prefix = attention + "qkv_proj.";
  const std::int64_t q_rows = std::int64_t{config_.num_qo_heads} * config_.head_dim_qk;
  const std::vector<Matrix> stack{{prefix + "q_proj", q_rows},
                                  {prefix + "k_proj", channels_ - q_rows},
                                  {prefix + "v_proj_current", delayed_},
                                  {prefix + "v_proj_delayed", delayed_}};
  projection_ = loader.linear(stack, hidden, config_.qkv_bias ? Bias::required : Bias::if_present);
  output_ = loader.linear({attention + "o_proj", hidden},
                          std::int64_t{config_.num_qo_heads} * config_.head_dim_vo,
                          config_.o_bias ? Bias::required : Bias::if_present);
  load_convolutions(loader, prefix);
  unit_.eps = 1e-12f;
  temperature_ = read(loader, attention + "qk_norm.temp", {config_.num_kv_heads});
}

void CcaMixer::load_convolutions(Loader& loader, const std::string& prefix) {
  const std::int64_t first = config_.cca_time0;
  const std::int64_t lags = config_.cca_time1;
  const std::int64_t dim = config_.head_dim_qk;
  const std::int64_t heads = channels_ / dim;
  const std::string depthwise = prefix + "conv_qk_depthwise.";
  const std::string grouped = prefix + "conv_qk_grouped.";
  const std::vector<float> weight = read(loader, depthwise + "weight", {channels_, 1, first});
  const std::vector<float> bias = read(loader, depthwise + "bias", {channels_});
  const WeightView full = loader.view(grouped + "weight", {channels_, dim, lags});
  if (!loader.status().ok()) return;

  const auto all = static_cast<std::size_t>(lags * channels_ + delayed_);
  std::vector<float> taps(all * static_cast<std::size_t>(taps_), 0.0f);
  std::vector<float> biases(all, 0.0f);
  for (std::int64_t lag = 0; lag < lags; ++lag)
    for (std::int64_t c = 0; c < channels_; ++c) {
      const std::int64_t row = lag * channels_ + c;
      std::copy_n(weight.begin() + c * first, first, taps.begin() + row * taps_ + lag);
      biases[static_cast<std::size_t>(row)] = bias[static_cast<std::size_t>(c)];
    }
  for (std::int64_t c = lags * channels_; c < static_cast<std::int64_t>(all); ++c)
    taps[static_cast<std::size_t>(c * taps_ + taps_ - 2)] = 1.0f;  // the token before
  taps_weight_ = loader.numbers(taps);
  taps_bias_ = loader.numbers(biases);

  // [out, in, lag] becomes one [out, in] a lag.
  WeightView pairs = full;
  pairs.rank = 2;
  pairs.shape = {channels_ * dim, lags};
  WeightView by_lag = loader.transposed(pairs);
  by_lag.shape = {lags * channels_, dim};
  for (std::int64_t head = 0; head < lags * heads; ++head) {
    const WeightView matrix = by_lag.row_range(head * dim, dim);
    mixing_.push_back(loader.linear(std::span(&matrix, 1)));
  }
  mixing_bias_ = loader.vector(grouped + "bias", channels_);
}

CcaMixer::Tensors CcaMixer::take(StepMemory& memory, std::int64_t n) const {
  const std::int64_t lagged = config_.cca_time1 * channels_ + delayed_;
  Tensors t;
  t.projected = memory.take(DType::f32, {n, channels_ + 2 * delayed_});
  t.lagged = memory.take(DType::f32, {n, lagged});
  t.convolved = memory.take(DType::f32, {n, lagged});
  t.qk = memory.take(DType::f32, {n, channels_});
  t.v = memory.take(DType::f32, {n, 2 * delayed_});
  t.o = memory.take(DType::f32, {n, output_->columns()});
  const std::int64_t q_width = std::int64_t{config_.num_qo_heads} * config_.head_dim_qk;
  t.q_narrow = take_narrow(memory, dtype_, n, q_width);
  t.k_narrow = take_narrow(memory, dtype_, n, channels_ - q_width);
  t.v_narrow = take_narrow(memory, dtype_, n, 2 * delayed_);
  t.o_narrow = take_narrow(memory, dtype_, n, output_->columns());
  return t;
}

void CcaMixer::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
  convolution_.lay_out(memory, num_tokens);
}

/// qk: from the convolved rows and the projected ones, unit length times sqrt(dim).
void CcaMixer::mix_heads(Ops& ops, const Tensors& t) const {
  const std::int64_t dim = config_.head_dim_qk;
  const std::int64_t q_heads = config_.num_qo_heads;
  const std::int64_t all_heads = q_heads + config_.num_kv_heads;
  const std::int64_t per_key = q_heads / config_.num_kv_heads;
  for (std::int64_t head = 0; head < all_heads; ++head)
    for (std::int64_t lag = 0; lag < config_.cca_time1; ++lag)
      ops.linear(*mixing_[static_cast<std::size_t>(lag * all_heads + head)],
                 columns(t.convolved, lag * channels_ + head * dim, dim),
                 columns(t.qk, head * dim, dim), lag > 0);
  ops.add(row_of(mixing_bias_, t.qk), 1.0f, t.qk);
  for (std::int64_t head = 0; head < q_heads; ++head) {
    const std::int64_t key = q_heads + head / per_key;
    const TensorView raw_q = columns(t.projected, head * dim, dim);
    const TensorView raw_k = columns(t.projected, key * dim, dim);
    const TensorView q = columns(t.qk, head * dim, dim);
    const TensorView k = columns(t.qk, key * dim, dim);
    ops.add(raw_q, 0.5f, q);
    ops.add(raw_k, 0.5f, q);
    const float share = 0.5f / static_cast<float>(per_key);
    ops.add(raw_q, share, k);
    ops.add(raw_k, share, k);
  }
  ops.norm(heads(t.qk, dim), unit_, heads(t.qk, dim));
  for (std::int64_t head = 0; head < config_.num_kv_heads; ++head) {
    const TensorView k = columns(t.qk, (q_heads + head) * dim, dim);
    ops.scale(k, temperature_[static_cast<std::size_t>(head)], k);
  }
}

Status CcaMixer::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  Ops& ops = step.ops;
  ops.linear(*projection_, x, t.projected);
  const std::int64_t lags = config_.cca_time1;
  for (std::int64_t lag = 0; lag < lags; ++lag)
    ops.convert(columns(t.projected, 0, channels_), columns(t.lagged, lag * channels_, channels_));
  ops.convert(columns(t.projected, channels_ + delayed_, delayed_),
              columns(t.lagged, lags * channels_, delayed_));
  LinearCall call;
  call.conv_input = t.lagged;
  call.conv_silu = false;
  call.conv_weight = static_cast<const float*>(taps_weight_.data());
  call.conv_bias = static_cast<const float*>(taps_bias_.data());
  if (Status s = convolution_.run(step, call, t.convolved); !s.ok()) return s;
  ops.convert(columns(t.projected, channels_, delayed_), columns(t.v, 0, delayed_));
  ops.convert(columns(t.convolved, lags * channels_, delayed_), columns(t.v, delayed_, delayed_));
  mix_heads(ops, t);

  const std::int64_t dim = config_.head_dim_qk;
  const std::int64_t q_width = std::int64_t{config_.num_qo_heads} * dim;
  const TensorView q = heads(columns(t.qk, 0, q_width), dim);
  const TensorView k = heads(columns(t.qk, q_width, channels_ - q_width), dim);
  if (rope_ >= 0)
    ops.rope(heads(t.qk, dim), step.cos_sin[static_cast<std::size_t>(rope_)], 0,
             config_.rope.interleaved);
  const TensorView o = heads(t.o, config_.head_dim_vo);
  const AttentionTensors tensors{.q = narrowed(ops, q, t.q_narrow),
                                 .k = narrowed(ops, k, t.k_narrow),
                                 .v = narrowed(ops, heads(t.v, config_.head_dim_vo), t.v_narrow),
                                 .o = narrow_output(o, t.o_narrow),
                                 .layer = layer_,
                                 .kv_layer = layer_,
                                 .group = group_};
  if (Status s = attend(step, tensors); !s.ok()) return s;
  widen_output(ops, o, t.o_narrow);
  ops.linear(*output_, t.o, out);
  return {};
}

}  // namespace attune::model
