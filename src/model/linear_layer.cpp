#include "model/linear_layer.hpp"

#include <string>
#include <vector>

namespace attune::model {
namespace {

TensorView rows_or_none(const TensorView& view, const AttentionPart& part) {
  return view.defined() ? rows(view, part.first_row, part.num_rows) : view;
}

}  // namespace

Status LinearLayer::run(Step& step, const LinearCall& call, const TensorView& o) const {
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
