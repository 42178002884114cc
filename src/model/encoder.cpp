#include "model/encoder.hpp"

#include <string>
#include <utility>

#include "model/dense_feed_forward.hpp"
#include "model/gqa_mixer.hpp"

namespace attune::model {

EncoderModel::EncoderModel(const ModelConfig& config, std::vector<AttentionGroup> groups, Ops& ops,
                           std::int64_t max_tokens)
    : config_(config),
      groups_(std::move(groups)),
      ops_(ops),
      max_tokens_(max_tokens),
      ropes_(config.context_length, config.context_length) {}

Result<std::unique_ptr<EncoderModel>> EncoderModel::make(const ModelConfig& config,
                                                         std::vector<AttentionGroup> groups,
                                                         const WeightStore& store, Ops& ops,
                                                         std::int64_t max_tokens) {
  if (config.positions != PositionKind::learned) {
    return unsupported(
        "this encoder's positions are not learned ones, which this build cannot run");
  }
  std::unique_ptr<EncoderModel> model(new EncoderModel(config, std::move(groups), ops, max_tokens));
  if (Status s = model->load(store); !s.ok()) return s;
  StepMemory counting;
  (void)model->take(counting, max_tokens);
  for (const Layer& layer : model->layers_) {
    layer.attention->lay_out(counting, max_tokens);
    layer.feed_forward->lay_out(counting, max_tokens);
  }
  Result<Buffer> memory = ops.allocate(counting.peak_bytes());
  if (!memory.ok()) return memory.status();
  model->memory_ = std::move(*memory);
  return model;
}

Status EncoderModel::load(const WeightStore& store) {
  Loader loader(config_, groups_, store, ops_, ropes_);
  const std::int64_t hidden = config_.hidden_size;
  const std::string embeddings = loader.root() + "embeddings.";
  words_ = loader.table({embeddings + "word_embeddings", config_.vocab_size}, hidden);
  positions_ = loader.table({embeddings + "position_embeddings", config_.context_length}, hidden);
  types_ = loader.table({embeddings + "token_type_embeddings", config_.num_token_types}, hidden);
  embedding_norm_ = loader.norm(embeddings + "LayerNorm", hidden);
  for (int i = 0; i < config_.num_layers() && loader.status().ok(); ++i) {
    const std::string prefix = loader.layer(i);
    Layer& layer = layers_.emplace_back();
    layer.attention = std::make_unique<GqaMixer>(loader, i);
    layer.attention_norm = loader.norm(prefix + "attention.output.LayerNorm", hidden);
    layer.feed_forward = std::make_unique<DenseFeedForward>(
        loader, prefix, config_.layers[static_cast<std::size_t>(i)].intermediate_size);
    layer.feed_forward_norm = loader.norm(prefix + "output.LayerNorm", hidden);
  }
  if (!loader.status().ok()) return loader.status();
  if (Status s = ropes_.upload(ops_); !s.ok()) return s;
  return ops_.synchronize();
}

EncoderModel::StepTensors EncoderModel::take(StepMemory& memory, std::int64_t num_tokens) const {
  StepTensors t;
  t.tokens = memory.take(DType::i32, {num_tokens});
  t.positions = memory.take(DType::i32, {num_tokens});
  t.types = memory.take(DType::i32, {num_tokens});
  t.x = memory.take(DType::f32, {num_tokens, config_.hidden_size});
  t.branch = memory.take(DType::f32, {num_tokens, config_.hidden_size});
  return t;
}

Status EncoderModel::forward(const StepInput& input, std::span<float> hidden) {
  const auto num_tokens = static_cast<std::int64_t>(input.tokens.size());
  require(num_tokens > 0 && num_tokens <= max_tokens_ && input.groups.size() == groups_.size() &&
              hidden.size() == input.tokens.size() * static_cast<std::size_t>(config_.hidden_size),
          "a step within its model's bounds");
  StepMemory memory(memory_.data(), memory_.bytes());
  const StepTensors t = take(memory, num_tokens);
  const std::vector<std::int32_t> first_type(input.tokens.size(), 0);
  ops_.upload(t.tokens.data, input.tokens.data(), input.tokens.size_bytes());
  ops_.upload(t.positions.data, input.positions.data(), input.positions.size_bytes());
  ops_.upload(t.types.data, first_type.data(), first_type.size() * sizeof(std::int32_t));
  ops_.embedding(*words_, t.tokens, 1.0f, t.x);
  ops_.embedding(*positions_, t.positions, 1.0f, t.branch);
  ops_.add(t.branch, 1.0f, t.x);
  ops_.embedding(*types_, t.types, 1.0f, t.branch);
  ops_.add(t.branch, 1.0f, t.x);
  ops_.norm(t.x, embedding_norm_.params, t.x);

  Step step{.input = input,
            .ops = ops_,
            .memory = memory,
            .num_tokens = num_tokens,
            .tokens = t.tokens,
            .positions = t.positions,
            .cos_sin = ropes_.cos_sin(),
            .query_scale = {},
            .per_layer_inputs = {}};
  for (const Layer& layer : layers_) {
    if (Status s = layer.attention->forward(step, t.x, t.branch); !s.ok()) return s;
    ops_.add(t.branch, 1.0f, t.x);
    ops_.norm(t.x, layer.attention_norm.params, t.x);
    if (Status s = layer.feed_forward->forward(step, t.x, t.branch); !s.ok()) return s;
    ops_.add(t.branch, 1.0f, t.x);
    ops_.norm(t.x, layer.feed_forward_norm.params, t.x);
  }
  if (Status s = ops_.download(hidden.data(), t.x.data, hidden.size_bytes()); !s.ok()) return s;
  return ops_.synchronize();
}

}  // namespace attune::model
