// The engine: requests in, tokens out, one step at a time (layer runtime).
//
//   auto id = engine.submit(prompt, {.max_new_tokens = 32});
//   while (!engine.idle()) {
//     auto events = engine.step();             // a Status is for the engine; a request that fails
//     for (const Event& e : *events) …         // says so in its own finish_reason
//   }
//   Request done = engine.take(*id);
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <attune/cache.hpp>
#include <attune/status.hpp>

#include "model/model.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/batch_builder.hpp"
#include "runtime/engine_options.hpp"
#include "runtime/graph_replay.hpp"
#include "runtime/kv_memory.hpp"
#include "runtime/prefix_sharing.hpp"
#include "runtime/request.hpp"
#include "runtime/request_states.hpp"
#include "runtime/sampler.hpp"
#include "runtime/scheduler.hpp"
#include "runtime/step_plans.hpp"

namespace attune::runtime {

/// A request's next token, or its end.
struct Event {
  RequestId request{};
  std::optional<std::int32_t> token;  ///< absent when the request ended without one
  FinishReason finish_reason = FinishReason::none;
};

struct EngineStatistics {
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  double prefill_seconds = 0;  ///< steps that hold both phases count by their share of rows
  double decode_seconds = 0;
  std::int64_t num_steps = 0;
  std::int64_t num_preemptions = 0;
  std::int64_t cached_tokens = 0;  ///< of prompts, found in the prefix cache
  std::int64_t num_decodes = 0;    ///< requests that decoded or verified, summed over steps
  std::int64_t num_drafts = 0;     ///< guesses verified
  std::int64_t num_accepted_drafts = 0;
  std::int64_t kv_bytes = 0;
  std::int64_t state_bytes = 0;
  std::int64_t workspace_bytes = 0;
  GraphStatistics graphs{};
  Replanning replanning{};  ///< of decodes on a device
  LatentStatistics latent{};
};

class Engine {
 public:
  /// The model must be made with model_options() of the same options; it and `ops` outlive the
  /// engine.
  static Result<std::unique_ptr<Engine>> make(model::Model& model, model::Ops& ops,
                                              BackendSet backends, const EngineOptions& options);

  /// Refuses an empty prompt, one that does not fit the context or the pool, and tokens outside the
  /// vocabulary.
  Result<RequestId> submit(std::span<const std::int32_t> prompt, const RequestOptions& options);

  /// Runs one step; no events when there was nothing to do.
  Result<std::vector<Event>> step();

  /// Ends a request early; its tokens so far stay with it.
  void cancel(RequestId id);

  /// The request, which leaves the engine.
  [[nodiscard]] Request take(RequestId id);
  [[nodiscard]] const Request& find(RequestId id) const { return *requests_.at(id); }

  /// Factors of integer KV types (kv_calibration.hpp), which outlive the engine. Before any
  /// request.
  void use_kv_scales(std::span<const model::LayerKvScales> by_layer) { kv_scales_ = by_layer; }

  [[nodiscard]] bool idle() const { return scheduler_->idle(); }
  [[nodiscard]] EngineStatistics statistics() const;
  [[nodiscard]] const EngineOptions& options() const { return options_; }
  [[nodiscard]] const BackendSet& backends() const { return backends_; }
  /// Pages held of each pool, for tests and statistics.
  [[nodiscard]] std::span<const PagePool> pools() const { return kv_->pools(); }
  [[nodiscard]] const cache::KvStorage& kv() const { return kv_->storage(); }
  /// None where options().prefix is not enabled.
  [[nodiscard]] const PrefixCache* prefix_cache() const {
    return sharing_ ? &sharing_->cache() : nullptr;
  }

 private:
  Engine(model::Model& model, model::Ops& ops, BackendSet backends, const EngineOptions& options)
      : model_(model), ops_(ops), backends_(std::move(backends)), options_(options) {}

  Status allocate();
  [[nodiscard]] Status check(std::span<const std::int32_t> prompt,
                             const RequestOptions& options) const;
  /// Guesses for the requests that generate.
  void propose();
  Status assign_states(std::span<const ScheduledRow> rows);
  /// How the rows become batches: few shapes where a step may be replayed.
  [[nodiscard]] BatchShape shape_of(std::span<const ScheduledRow> rows) const;
  /// How the device chooses the rows' tokens, where it does.
  void assign_choices(std::span<const ScheduledRow> rows);
  Status run_model(std::span<const ScheduledRow> rows);
  /// What the step's logits say about its rows.
  Status take_logits(std::span<const ScheduledRow> rows, std::vector<Event>& events);
  /// `logit_row`: of the step.
  [[nodiscard]] std::span<const float> logits_of(std::size_t logit_row) const;
  Result<std::int32_t> next_token(const Request& request, std::size_t logit_row);
  Status choose_token(Request& request, std::size_t logit_row, std::vector<Event>& events);
  /// A row that reaches its request's newest token, from the logits of that one on.
  Status complete(const ScheduledRow& row, std::size_t logit_row, std::vector<Event>& events);
  void finish(Request& request, FinishReason reason);
  void count(std::span<const ScheduledRow> rows, double seconds);

  model::Model& model_;
  model::Ops& ops_;
  BackendSet backends_;
  EngineOptions options_;
  std::optional<KvMemory> kv_;
  std::optional<RequestStates> states_;  ///< of linear layers; none without them
  std::span<const model::LayerKvScales> kv_scales_;
  std::unique_ptr<PrefixSharing> sharing_;
  std::optional<Scheduler> scheduler_;
  std::unique_ptr<StepPlans> plans_;
  std::optional<GraphReplay> replay_;  ///< of decodes, where memory is not the host's

  StepBatch batch_;
  std::vector<float> logits_;
  std::vector<model::Choice> choices_;  ///< of the step's rows, where the device chooses
  std::vector<std::int32_t> chosen_;    ///< what it chose; what needs_host() is passed over
  Sampler sampler_;
  std::map<RequestId, std::unique_ptr<Request>> requests_;
  std::int64_t next_id_ = 0;
  EngineStatistics statistics_;
};

}  // namespace attune::runtime
