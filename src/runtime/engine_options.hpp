// What an engine is made with, and the bounds that follow from it (layer runtime).
#pragma once

#include <cstdint>

#include "model/config.hpp"
#include "model/model.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/latent_form.hpp"
#include "runtime/prefix_sharing.hpp"
#include "runtime/scheduler.hpp"
#include "runtime/speculation.hpp"

namespace attune::runtime {

struct EngineOptions {
  std::int64_t context_limit = 0;  ///< tokens of the longest request
  std::int64_t pool_tokens = 0;    ///< of the full-attention pool; 0 = one request of context_limit
  SchedulerOptions scheduler;
  PrefixOptions prefix{};
  SpeculationOptions speculation{};
  LatentOptions latent{};
  bool keep_logits = false;    ///< requests may ask for the logits of every position
  bool score_prompts = false;  ///< requests may ask for the log-probability of every token
  /// Decode steps are recorded and replayed where the device can (graph_replay.hpp).
  bool record_decodes = true;

  /// Rows of the requests that decode or verify in one step.
  [[nodiscard]] std::int64_t max_decode_tokens() const {
    return scheduler.max_batch * speculation.max_rows();
  }
  /// Of them, those whose logits are wanted: all, where there are no states that lag behind.
  [[nodiscard]] std::int64_t max_decode_logits() const {
    return scheduler.max_batch * (speculation.max_drafts + 1);
  }
  [[nodiscard]] std::int64_t max_step_tokens() const {
    return scheduler.chunk_size + max_decode_tokens();
  }
  /// Of one request in one step.
  [[nodiscard]] std::int64_t max_request_tokens() const;
};

/// Where steps of prompts may end: anywhere, or, where bits or recurrent states depend on it, at
/// multiples that kernels and pages have in common. To be called before model_options().
void align_steps(EngineOptions& options, const model::ModelConfig& config, std::int32_t page_size);

/// What a model must be made for, so that an engine with these options and backends can use it.
[[nodiscard]] model::ModelOptions model_options(const EngineOptions& options,
                                                const BackendSet& backends);

}  // namespace attune::runtime
