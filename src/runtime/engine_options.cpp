#include "runtime/engine_options.hpp"

#include <algorithm>
#include <numeric>

#include "model/layer_state.hpp"

namespace attune::runtime {

std::int64_t EngineOptions::max_request_tokens() const {
  return std::max(scheduler.chunk_size, speculation.max_rows());
}

void align_steps(EngineOptions& options, const model::ModelConfig& config, std::int32_t page_size) {
  const bool keeps_states = options.prefix.enabled && model::keeps_states(config);
  if (!options.scheduler.batch_invariant && !keeps_states) return;
  options.scheduler.granule = std::lcm(kPromptGranule, std::int64_t{page_size});
  options.scheduler.chunk_size = std::max(options.scheduler.chunk_size, options.scheduler.granule);
}

model::ModelOptions model_options(const EngineOptions& options, const BackendSet& backends) {
  const std::int64_t rows = options.max_step_tokens();
  const bool expands = backends.expands() && options.latent.form != LatentForm::absorbed;
  return {.max_tokens = rows,
          .max_logit_rows =
              options.keep_logits || options.score_prompts ? rows : options.max_decode_logits(),
          .context_limit = options.context_limit,
          .latent_chunk = expands ? options.latent.chunk_tokens : 0};
}

}  // namespace attune::runtime
