#include "model/linear_layer.hpp"

#include <string>
#include <vector>

#include "model/attention_call.hpp"

namespace attune::model {
namespace {

TensorView rows_or_none(const TensorView& view, const AttentionPart& part) {
  return view.defined() ? rows(view, part.first_row, part.num_rows) : view;
}

/// `view` in the backend's dtype: converted into `room`, or itself.
void narrow(Ops& ops, TensorView& view, const TensorView& room) {
  if (!view.defined() || room.rank == 0) return;
  ops.convert(view, room);
  view = room;
}

}  // namespace

LinearLayer::Narrow LinearLayer::take(StepMemory& memory, std::int64_t n) const {
  const auto room = [&](std::int64_t width) {
    return width == 0 ? TensorView{} : take_narrow(memory, dtype_, n, width);
  };
  const LinearConfig& c = config_;
  const std::int64_t keys = static_cast<std::int64_t>(c.num_k_heads) * c.head_dim_k;
  const std::int64_t values = static_cast<std::int64_t>(c.num_v_heads) * c.head_dim_v;
  Narrow t;
  if (c.variant == Variant::short_conv) {
    t.conv_input = room(c.conv_dim);
    t.o = room(c.conv_dim);
    return t;
  }
  if (c.variant == Variant::lightning) {
    t.q = room(keys);
    t.k = room(keys);
    t.v = room(values);
  } else {
    t.conv_input = room(c.conv_dim);
    t.gate =
        room(c.variant == Variant::kda ? static_cast<std::int64_t>(c.num_v_heads) * c.head_dim_k
                                       : c.num_v_heads);
    t.beta = room(c.num_v_heads);
  }
  t.o = room(values);
  return t;
}

Status LinearLayer::run(Step& step, const LinearCall& all, const TensorView& result) const {
  const auto frame = step.memory.frame();
  const Narrow t = take(step.memory, step.num_tokens);
  LinearCall call = all;
  narrow(step.ops, call.conv_input, t.conv_input);
  narrow(step.ops, call.q, t.q);
  narrow(step.ops, call.k, t.k);
  narrow(step.ops, call.v, t.v);
  narrow(step.ops, call.gate, t.gate);
  narrow(step.ops, call.beta, t.beta);
  const TensorView o = t.o.rank == 0 ? result : t.o;
  const auto layer = static_cast<std::size_t>(layer_);
  const GroupStep& group = step.input.groups[static_cast<std::size_t>(group_)];
  for (const AttentionPart& part : group.parts) {
    LinearCall linear = call;
    linear.conv_input = rows_or_none(call.conv_input, part);
    linear.q = rows_or_none(call.q, part);
    linear.k = rows_or_none(call.k, part);
    linear.v = rows_or_none(call.v, part);
    linear.gate = rows_or_none(call.gate, part);
    linear.beta = rows_or_none(call.beta, part);
    linear.state = step.input.states->recurrent(layer);
    linear.conv_state = step.input.states->conv(layer);
    LayerCall layer_call;
    layer_call.layer = layer_;
    layer_call.o = rows(o, part.first_row, part.num_rows);
    layer_call.linear = &linear;
    if (Status s = part.backend->run(*part.plan, layer_call, step.ops.stream()); !s.ok()) return s;
  }
  if (t.o.rank != 0) step.ops.convert(o, result);
  return {};
}

ConvolutionWeights::ConvolutionWeights(Loader& loader, std::span<const std::string> names,
                                       const LinearConfig& config) {
  std::vector<std::string> weights;
  std::vector<std::string> biases;
  for (const std::string& name : names) {
    weights.push_back(name + ".weight");
    biases.push_back(name + ".bias");
  }
  weight = loader.flat(weights, static_cast<std::int64_t>(config.conv_dim) * config.conv_kernel);
  if (loader.has(biases.front())) bias = loader.flat(biases, config.conv_dim);
}

void ConvolutionWeights::put_into(LinearCall& call) const {
  call.conv_weight = static_cast<const float*>(weight.data());
  call.conv_bias = static_cast<const float*>(bias.data());
}

}  // namespace attune::model
