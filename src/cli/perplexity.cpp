#include "cli/perplexity.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/generate_report.hpp"
#include "cli/model_options.hpp"

namespace attune::cli {
namespace {

/// Tokens of one window. Longer ones cost attention quadratic in their length and change the figure
/// little; figures are comparable only between equal windows.
constexpr std::int64_t kWindow = 1024;

}  // namespace

int print_perplexity(const GenerateOptions& options, model::Checkpoint checkpoint,
                     const text::Tokenizer& tokenizer) {
  const Result<std::string> text = read_file(*options.perplexity);
  if (!text.ok()) return report(text.status());
  const Result<std::vector<text::TokenId>> tokens = tokenizer.encode(*text);
  if (!tokens.ok()) return report(tokens.status());
  if (tokens->size() < 2)
    return report(invalid_argument(*options.perplexity + " holds fewer than two tokens"));

  const std::int64_t window = std::min(checkpoint.config.context_length, kWindow);
  ModelRun run{.weights = options.weights,
               .weights_cache = options.weights_cache,
               .batch_invariant = options.batch_invariant,
               .calibration = calibration_tokens(options.common, &tokenizer)};
  run.engine.context_limit = window;
  run.engine.score_prompts = true;
  run.engine.latent = latent_options(options);
  run.engine.scheduler = {
      .chunk_size = std::min(options.chunk_size.value_or(kScoredChunkSize), window),
      .max_batch = 1};
  Result<std::unique_ptr<runtime::Session>> session =
      open_session(options.common, run, std::move(checkpoint));
  if (!session.ok()) return report(session.status());
  runtime::Engine& engine = (*session)->engine();

  double sum = 0;
  std::int64_t count = 0;
  const std::span<const std::int32_t> all(*tokens);
  for (std::size_t begin = 0; begin + 1 < all.size(); begin += static_cast<std::size_t>(window)) {
    const std::size_t length = std::min(all.size() - begin, static_cast<std::size_t>(window));
    const auto id =
        engine.submit(all.subspan(begin, length), {.max_new_tokens = 0, .want_scores = true});
    if (!id.ok()) return report(id.status());
    while (!engine.idle())
      if (const auto events = engine.step(); !events.ok()) return report(events.status());
    const runtime::Request done = engine.take(*id);
    if (done.finish_reason == runtime::FinishReason::failed) return report(done.failure);
    for (double score : done.scores) sum -= score;
    count += static_cast<std::int64_t>(done.scores.size());
  }
  const double perplexity = std::exp(sum / static_cast<double>(count));
  if (options.common.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"perplexity", perplexity},
                                              {"tokens", count},
                                              {"window", window},
                                              {"steps", engine.statistics().num_steps},
                                              {"kv_bytes", engine.statistics().kv_bytes}}
                           .dump());
  } else {
    fmt::print("perplexity {:.4f} over {} tokens in windows of {}\n", perplexity, count, window);
    print_statistics(**session);
  }
  return kDone;
}

}  // namespace attune::cli
