#include "model/model.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "model/loader.hpp"

namespace attune::model {
namespace {

/// Keys that a list of sparse layers holds; 0 = there are none.
int indexer_topk(const ModelConfig& config) {
  int most = 0;
  for (const AttentionConfig& a : config.attention)
    if (a.kind == AttentionLayerKind::sparse_mla || a.kind == AttentionLayerKind::dsv4)
      most = std::max(most, a.indexer.topk);
  return most;
}

bool compresses(const ModelConfig& config) {
  return std::ranges::any_of(config.attention,
                             [](const AttentionConfig& a) { return a.compress_ratio > 0; });
}

}  // namespace

Model::Model(const ModelConfig& config, std::vector<AttentionGroup> groups, Ops& ops,
             const ModelOptions& options)
    : config_(config),
      ops_(ops),
      options_(options),
      groups_(std::move(groups)),
      ropes_(config.context_length,
             options.context_limit > 0 ? options.context_limit : config.context_length) {}

Result<std::unique_ptr<Model>> Model::make(const ModelConfig& config,
                                           std::vector<AttentionGroup> groups,
                                           const WeightStore& store, Ops& ops,
                                           const ModelOptions& options) {
  std::unique_ptr<Model> model(new Model(config, std::move(groups), ops, options));
  if (Status s = model->load(store); !s.ok()) return s;
  if (Status s = model->count_memory(); !s.ok()) return s;
  return model;
}

Status Model::load(const WeightStore& store) {
  Loader loader(config_, groups_, store, ops_, ropes_);
  loader.expand_latents(options_.latent_chunk);
  const std::int64_t hidden = config_.hidden_size;
  const Matrix embedding{loader.pick(loader.root(), {"embed_tokens", "embeddings", "embed"}),
                         config_.vocab_size};
  if (config_.tie_embeddings) {
    embedding_ = loader.linear(embedding, hidden);
  } else {
    embedding_ = loader.table(embedding, hidden);
    const Matrix head{loader.pick("", {"lm_head", "language_model.lm_head", "head"}),
                      config_.vocab_size};
    head_ = loader.linear(head, hidden);
  }
  final_norm_ = loader.norm(
      loader.pick(loader.root(), {"norm", "final_layernorm", "norm_f", "embedding_norm"}), hidden);
  if (config_.hyper_connections > 0) {
    const bool folder = loader.has(loader.root() + "hc_head.hc_fn");
    final_collapse_.emplace(loader, loader.root() + (folder ? "hc_head.hc_" : "hc_head_"),
                            /*collapses_only=*/true);
  }
  if (config_.per_layer_input_size > 0) per_layer_inputs_.emplace(loader);
  if (config_.residual_scaling)
    input_scaling_.emplace(loader, loader.root() + "input_hidden_states", hidden);
  for (int layer = 0; layer < config_.num_layers() && loader.status().ok(); ++layer)
    layers_.emplace_back(loader, layer);
  weight_copies_ = loader.take_copies();
  if (!loader.status().ok()) return loader.status();
  if (Status s = ropes_.upload(ops_); !s.ok()) return s;
  return ops_.synchronize();
}

Model::StepTensors Model::take(StepMemory& memory, std::int64_t num_tokens,
                               std::int64_t num_logit_rows) {
  StepTensors t;
  t.tokens = memory.take(DType::i32, {num_tokens});
  t.positions = memory.take(DType::i32, {num_tokens});
  t.logit_rows = memory.take(DType::i32, {num_logit_rows});
  const std::int64_t streams = std::max(1, config_.hyper_connections);
  t.x = memory.take(DType::f32, {num_tokens, streams * config_.hidden_size});
  if (final_collapse_) {
    t.embedded = memory.take(DType::f32, {num_tokens, config_.hidden_size});
    t.last_streams = memory.take(DType::f32, {num_logit_rows, streams * config_.hidden_size});
    t.hyper = final_collapse_->take(memory, num_logit_rows);
  }
  if (has_shortcut(config_))
    t.shortcut = memory.take(DType::f32, {num_tokens, config_.hidden_size});
  if (config_.router_hidden_size > 0)
    t.router_states = memory.take(DType::f32, {num_tokens, config_.router_hidden_size});
  if (const int topk = indexer_topk(config_); topk > 0)
    t.topk_indices = memory.take(DType::i32, {num_tokens, topk});
  if (compresses(config_))
    t.window_tokens =
        memory.take(DType::u8, {num_tokens * static_cast<std::int64_t>(sizeof(WindowToken))});
  t.last = memory.take(DType::f32, {num_logit_rows, config_.hidden_size});
  t.logits = memory.take(DType::f32, {num_logit_rows, config_.vocab_size});
  t.choices = memory.take(DType::u8, {num_logit_rows * static_cast<std::int64_t>(sizeof(Choice))});
  t.chosen = memory.take(DType::i32, {num_logit_rows});
  ropes_.take(memory, num_tokens);
  return t;
}

Model::StepTensors Model::take(StepMemory& memory, const StepInput& input) {
  const auto num_tokens = static_cast<std::int64_t>(input.tokens.size());
  const auto num_logit_rows = static_cast<std::int64_t>(input.logit_rows.size());
  require(num_tokens <= options_.max_tokens && num_logit_rows <= options_.max_logit_rows &&
              input.positions.size() == input.tokens.size() &&
              (input.choices.empty() || input.choices.size() == input.logit_rows.size()) &&
              input.groups.size() == groups_.size(),
          "a step within its model's bounds");
  return take(memory, num_tokens, num_logit_rows);
}

Status Model::count_memory() {
  StepMemory counting;
  (void)take(counting, options_.max_tokens, options_.max_logit_rows);
  if (per_layer_inputs_) {
    (void)per_layer_inputs_->take(counting, options_.max_tokens);
    per_layer_inputs_->lay_out(counting, options_.max_tokens);
  }
  for (const DecoderLayer& layer : layers_) layer.lay_out(counting, options_.max_tokens);
  Result<Buffer> memory = ops_.allocate(counting.peak_bytes());
  if (!memory.ok()) return memory.status();
  memory_ = std::move(*memory);
  return {};
}

Status Model::forward(const StepInput& input, std::span<float> logits) {
  if (input.tokens.empty()) return {};
  upload(input);
  if (Status s = compute(input); !s.ok()) return s;
  return download(input, logits);
}

void Model::upload(const StepInput& input) {
  StepMemory memory(memory_.data(), memory_.bytes());
  const StepTensors t = take(memory, input);
  ops_.upload(t.tokens.data, input.tokens.data(), input.tokens.size_bytes());
  ops_.upload(t.positions.data, input.positions.data(), input.positions.size_bytes());
  ops_.upload(t.logit_rows.data, input.logit_rows.data(), input.logit_rows.size_bytes());
  ops_.upload(t.choices.data, input.choices.data(), input.choices.size_bytes());
  ropes_.upload_positions(ops_, input.positions);
  if (!t.window_tokens.defined()) return;
  list_window_tokens(input.requests, input.positions, window_tokens_);
  ops_.upload(t.window_tokens.data, window_tokens_.data(),
              window_tokens_.size() * sizeof(WindowToken));
}

Status Model::compute(const StepInput& input) {
  StepMemory memory(memory_.data(), memory_.bytes());
  const StepTensors t = take(memory, input);
  const std::int64_t num_tokens = t.x.shape[0];
  ropes_.fill(ops_, t.positions);
  const TensorView embedded = final_collapse_ ? t.embedded : t.x;
  ops_.embedding(*embedding_, t.tokens, static_cast<float>(config_.embedding_multiplier), embedded);
  for (std::int64_t i = 0; i < config_.hyper_connections; ++i)
    ops_.convert(embedded, columns(t.x, i * config_.hidden_size, config_.hidden_size));
  if (input_scaling_) input_scaling_->apply(ops_, t.x);

  Step step{.input = input,
            .ops = ops_,
            .memory = memory,
            .num_tokens = num_tokens,
            .tokens = t.tokens,
            .positions = t.positions,
            .cos_sin = ropes_.cos_sin(),
            .query_scale = ropes_.query_scale(),
            .shortcut = t.shortcut,
            .router_states = t.router_states,
            .topk_indices = t.topk_indices,
            .window_tokens = t.window_tokens,
            .per_layer_inputs = {}};
  if (per_layer_inputs_) {
    step.per_layer_inputs = per_layer_inputs_->take(memory, num_tokens);
    per_layer_inputs_->fill(ops_, memory, t.tokens, t.x, step.per_layer_inputs);
  }
  for (const DecoderLayer& layer : layers_)
    if (Status s = layer.forward(step, t.x); !s.ok()) return s;

  if (input.logit_rows.empty()) return {};
  if (final_collapse_) {
    ops_.gather_rows(t.x, t.logit_rows, t.last_streams);
    if (Status s = final_collapse_->collapse(ops_, t.last_streams, t.hyper, t.last); !s.ok())
      return s;
  } else {
    ops_.gather_rows(t.x, t.logit_rows, t.last);
  }
  ops_.norm(t.last, final_norm_.params, t.last);
  ops_.linear(head_ ? *head_ : *embedding_, t.last, t.logits);
  if (config_.logits_multiplier != 1.0)
    ops_.scale(t.logits, static_cast<float>(config_.logits_multiplier), t.logits);
  if (config_.final_logits_soft_cap > 0)
    ops_.soft_cap(t.logits, static_cast<float>(config_.final_logits_soft_cap), t.logits);
  if (!input.choices.empty())
    ops_.choose(t.logits, static_cast<const Choice*>(t.choices.data), t.chosen);
  return {};
}

Status Model::download(const StepInput& input, std::span<float> logits) {
  StepMemory memory(memory_.data(), memory_.bytes());
  const StepTensors t = take(memory, input);
  require(logits.size() <= static_cast<std::size_t>(t.logits.num_elements()),
          "no more logits than the step has");
  if (Status s = ops_.download(logits.data(), t.logits.data, logits.size_bytes()); !s.ok())
    return s;
  return ops_.synchronize();
}

Status Model::download_tokens(const StepInput& input, std::span<std::int32_t> tokens) {
  StepMemory memory(memory_.data(), memory_.bytes());
  const StepTensors t = take(memory, input);
  require(tokens.size() <= input.choices.size(), "no more tokens than the step chooses");
  if (Status s = ops_.download(tokens.data(), t.chosen.data, tokens.size_bytes()); !s.ok())
    return s;
  return ops_.synchronize();
}

}  // namespace attune::model
