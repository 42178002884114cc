#include "runtime/embedder.hpp"
#include "device/runnable.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace attune::runtime {
namespace {

/// Tokens and texts of one forward pass.
constexpr std::int64_t kBatchTokens = 2048;
constexpr std::int64_t kBatchTexts = 64;

std::vector<float> pool(std::span<const float> rows, std::size_t width, model::Pooling pooling) {
  std::vector<double> sum(width, 0.0);
  const std::size_t count = pooling == model::Pooling::cls ? 1 : rows.size() / width;
  for (std::size_t i = 0; i < count * width; ++i) sum[i % width] += rows[i];
  double norm = 0;
  for (double& value : sum) {
    value /= static_cast<double>(count);
    norm += value * value;
  }
  norm = std::max(std::sqrt(norm), 1e-12);
  std::vector<float> vector(width);
  for (std::size_t i = 0; i < width; ++i) vector[i] = static_cast<float>(sum[i] / norm);
  return vector;
}

}  // namespace

Result<std::unique_ptr<Embedder>> Embedder::open(model::Checkpoint checkpoint,
                                                 const model::PoolingConfig& pooling,
                                                 const MakeBackends& make_backends,
                                                 const SessionOptions& options) {
  if (options.device.kind != DeviceKind::cpu) {
    return unsupported("models run on cpu in this build, asked for " +
                       std::string(name(options.device.kind)));
  }
  if (Status s = device::check_runnable(options.device); !s.ok()) return s;
  if (!checkpoint.config.is_encoder_only) {
    return invalid_argument("attune embed wants an encoder such as BERT, have " +
                            checkpoint.config.architecture);
  }
  std::unique_ptr<Embedder> e(new Embedder);
  e->checkpoint_ = std::move(checkpoint);
  e->pooling_ = pooling;
  const model::ModelConfig& config = e->checkpoint_.config;
  e->max_tokens_ = pooling.max_tokens > 0 ? std::min(pooling.max_tokens, config.context_length)
                                          : config.context_length;
  auto threads = device::ThreadPool::for_model(options.num_threads);
  if (!threads.ok()) return threads.status();
  e->threads_ = std::move(*threads);
  Result<BackendSet> backends = make_backends(config, *e->threads_, std::nullopt);
  if (!backends.ok()) return backends.status();
  e->backends_ = std::move(*backends);
  auto ops = model::make_cpu_ops(*e->threads_, {.weights = options.weights,
                                                .isa = options.device.isa,
                                                .batch_invariant = options.batch_invariant});
  if (!ops.ok()) return ops.status();
  e->ops_ = std::move(*ops);
  const std::int64_t batch_tokens = std::max(kBatchTokens, e->max_tokens_);
  auto model = model::EncoderModel::make(config, e->backends_.attention, *e->checkpoint_.weights,
                                         *e->ops_, batch_tokens);
  if (!model.ok()) return model.status();
  e->model_ = std::move(*model);

  const BatchBounds bounds{.max_batch = kBatchTexts,
                           .max_qo_tokens = batch_tokens,
                           .max_kv_entries = batch_tokens,
                           .max_kv_len = e->max_tokens_,
                           .page_size = 1,
                           .decode_only = false};
  for (const GroupBackends& group : e->backends_.groups) {
    const WorkspaceSize size = group.prefill->workspace_size(bounds);
    Result<model::Buffer> device = e->ops_->allocate(size.device_bytes);
    if (!device.ok()) return device.status();
    e->workspaces_.push_back(std::move(*device));
    e->host_workspaces_.emplace_back(size.host_bytes);
  }
  return e;
}

Result<std::vector<std::vector<float>>> Embedder::embed(
    std::span<const std::vector<std::int32_t>> texts) {
  std::vector<std::vector<float>> out;
  std::size_t begin = 0;
  while (begin < texts.size()) {
    std::size_t end = begin;
    std::int64_t tokens = 0;
    for (; end < texts.size() && end - begin < static_cast<std::size_t>(kBatchTexts); ++end) {
      const auto length = static_cast<std::int64_t>(texts[end].size());
      if (length == 0) return invalid_argument("a text without tokens has no embedding");
      if (length > max_tokens_) {
        return invalid_argument("the text has " + std::to_string(length) +
                                " tokens and the model takes " + std::to_string(max_tokens_));
      }
      if (end > begin && tokens + length > kBatchTokens) break;
      tokens += length;
    }
    if (Status s = embed_batch(texts.subspan(begin, end - begin), out); !s.ok()) return s;
    begin = end;
  }
  return out;
}

Status Embedder::embed_batch(std::span<const std::vector<std::int32_t>> texts,
                             std::vector<std::vector<float>>& out) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> indptr{0};
  for (const auto& text : texts) {
    tokens.insert(tokens.end(), text.begin(), text.end());
    for (std::size_t i = 0; i < text.size(); ++i) positions.push_back(static_cast<std::int32_t>(i));
    indptr.push_back(static_cast<std::int32_t>(tokens.size()));
  }
  for (std::int32_t token : tokens) {
    if (token < 0 || token >= checkpoint_.config.vocab_size)
      return invalid_argument("token " + std::to_string(token) + " is outside the vocabulary");
  }
  BatchView batch;
  batch.form = BatchForm::extend;
  batch.source = KvSource::ragged;
  batch.qo_indptr = indptr;
  batch.kv_indptr = indptr;

  std::vector<PlanHandle> plans;
  std::vector<model::AttentionPart> parts;
  std::vector<model::GroupStep> steps;
  parts.reserve(backends_.groups.size());
  for (std::size_t g = 0; g < backends_.groups.size(); ++g) {
    Backend& backend = *backends_.groups[g].prefill;
    const Workspace workspace{.device = workspaces_[g].data(),
                              .device_bytes = workspaces_[g].bytes(),
                              .host = host_workspaces_[g].data(),
                              .host_bytes = host_workspaces_[g].size()};
    Result<PlanHandle> plan = backend.plan(batch, workspace, ops_->stream());
    if (!plan.ok()) return plan.status();
    plans.push_back(std::move(*plan));
    parts.push_back({.first_row = 0,
                     .num_rows = static_cast<std::int64_t>(tokens.size()),
                     .backend = &backend,
                     .plan = plans.back().get()});
    steps.push_back({.parts = std::span(&parts.back(), 1), .slot_mapping = {}});
  }
  const auto width = static_cast<std::size_t>(checkpoint_.config.hidden_size);
  std::vector<float> hidden(tokens.size() * width);
  const model::StepInput input{
      .tokens = tokens, .positions = positions, .logit_rows = {}, .groups = steps, .kv = nullptr};
  if (Status s = model_->forward(input, hidden); !s.ok()) return s;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto first = static_cast<std::size_t>(indptr[i]) * width;
    out.push_back(
        pool(std::span(hidden).subspan(first, texts[i].size() * width), width, pooling_.pooling));
  }
  return {};
}

}  // namespace attune::runtime
