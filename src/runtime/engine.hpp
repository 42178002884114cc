// The engine: requests in, tokens out, one step at a time (layer runtime).
//
//   auto id = engine.submit(prompt, {.max_new_tokens = 32});
//   while (!engine.idle()) {
//     auto events = engine.step();             // a Status is for the engine; a request that fails
//     for (const Event& e : *events) …         // says so in its own finish_reason
//   }
//   Request done = engine.take(*id);
#pragma once

#include <array>
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

#include "cache/kv_storage.hpp"
#include "cache/state_pool.hpp"
#include "model/model.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/batch_builder.hpp"
#include "runtime/cache_groups.hpp"
#include "runtime/prefix_sharing.hpp"
#include "runtime/request.hpp"
#include "runtime/sampler.hpp"
#include "runtime/scheduler.hpp"

namespace attune::runtime {

struct EngineOptions {
  std::int64_t context_limit = 0;  ///< tokens of the longest request
  std::int64_t pool_tokens = 0;    ///< of the full-attention pool; 0 = one request of context_limit
  SchedulerOptions scheduler;
  PrefixOptions prefix{};
  SpeculationOptions speculation{};
  bool keep_logits = false;    ///< requests may ask for the logits of every position
  bool score_prompts = false;  ///< requests may ask for the log-probability of every token
};

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
};

/// Where steps of prompts may end: anywhere, or, where bits or recurrent states depend on it, at
/// multiples that kernels and pages have in common. To be called before model_options().
void align_steps(EngineOptions& options, const model::ModelConfig& config, std::int32_t page_size);

/// Rows that a model must be made for, so that an engine with these options can use it.
[[nodiscard]] model::ModelOptions model_options(const EngineOptions& options);

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
  [[nodiscard]] std::span<const PagePool> pools() const { return pools_; }
  [[nodiscard]] const cache::KvStorage& kv() const { return *kv_; }
  /// None where options().prefix is not enabled.
  [[nodiscard]] const PrefixCache* prefix_cache() const {
    return sharing_ ? &sharing_->cache() : nullptr;
  }

 private:
  Engine(model::Model& model, model::Ops& ops, BackendSet backends, const EngineOptions& options)
      : model_(model), ops_(ops), backends_(std::move(backends)), options_(options) {}

  /// One group's plan for one part of a step, in memory of its own.
  struct PlanSlot {
    model::Buffer device;
    std::vector<std::byte> host;
    Workspace workspace;
    PlanHandle plan;
  };

  Status allocate_cache();
  Status allocate_states();
  Result<std::shared_ptr<void>> allocate_on_device(std::size_t bytes);
  Result<cache::StateMemory> state_memory(std::span<const cache::StateShape> shapes);
  Status allocate_workspaces();
  /// Requests that start, or start over, get a zeroed state; those that ended or gave way return
  /// theirs.
  Status assign_states(std::span<const ScheduledRow> rows);
  void release_state(Request& request);
  /// The states of a request that starts from a cached prefix; those that it leaves to others.
  Status resume_state(Request& request);
  Status keep_state(Request& request);
  /// Guesses for the requests that generate.
  void propose();
  Status plan_step();
  /// Whose kernels serve a part: prefill's for drafts, unless they are decodes in disguise.
  [[nodiscard]] Phase phase_of(StepPart part, std::size_t group) const;
  [[nodiscard]] BatchBounds bounds_of(StepPart part, std::size_t group) const;
  [[nodiscard]] std::span<const std::int64_t> slots_on_device(std::size_t cache_group) const;
  Result<std::int32_t> next_token(const Request& request, std::span<const float> logits);
  Status choose_token(Request& request, std::span<const float> logits, std::vector<Event>& events);
  /// What the step's logits say about a row that reaches its request's newest token.
  Status complete(const ScheduledRow& row, std::span<const float> logits,
                  std::vector<Event>& events);
  void finish(Request& request, FinishReason reason);
  [[nodiscard]] BatchView view_of(const PartBatch& part, std::size_t group) const;

  model::Model& model_;
  model::Ops& ops_;
  BackendSet backends_;
  EngineOptions options_;
  std::vector<CacheGroup> cache_groups_;
  std::vector<int> cache_group_of_;  ///< by attention group; -1 = keeps no keys
  std::vector<PagePool> pools_;
  std::optional<cache::KvStorage> kv_;
  std::vector<model::Buffer>
      device_slots_;  ///< by cache group: slot_mapping, where memory is not the host's
  std::optional<cache::StatePool> states_;  ///< of linear layers; none without them
  std::span<const model::LayerKvScales> kv_scales_;
  std::unique_ptr<PrefixSharing> sharing_;
  std::optional<Scheduler> scheduler_;
  std::vector<std::array<PlanSlot, kStepParts>> plans_;  ///< by attention group, then part

  StepBatch batch_;
  std::vector<std::vector<model::AttentionPart>> parts_;  ///< by attention group
  std::vector<model::GroupStep> group_steps_;
  std::vector<float> logits_;
  Sampler sampler_;
  std::map<RequestId, std::unique_ptr<Request>> requests_;
  std::int64_t next_id_ = 0;
  EngineStatistics statistics_;
};

}  // namespace attune::runtime
