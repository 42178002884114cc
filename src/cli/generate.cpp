// attune generate: text from a model.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include "cli/command.hpp"
#include "cli/generate_options.hpp"
#include "cli/generate_report.hpp"
#include "cli/model_options.hpp"
#include "cli/perplexity.hpp"
#include "model/described_family.hpp"
#include "runtime/stop_filter.hpp"
#include "runtime/tokenizer_files.hpp"
#include "text/stream_decoder.hpp"

namespace attune::cli {
namespace {

/// A running request's text.
struct TextStream {
  std::optional<text::StreamDecoder> decoder;  ///< none without a tokenizer
  runtime::StopFilter filter;
  std::string text;
  std::vector<std::int32_t> tokens;  ///< up to the one that ended a stop string
};

bool stdout_is_gone() { return std::ferror(stdout) != 0; }

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Rows and pages for these prompts and no more: memory is what the model and its KV need.
Result<runtime::EngineOptions> engine_options(const GenerateOptions& o,
                                              const std::vector<Prompt>& prompts,
                                              const model::ModelConfig& config) {
  std::int64_t longest = 0;
  for (const Prompt& p : prompts)
    longest = std::max(longest, static_cast<std::int64_t>(p.tokens.size()));
  if (longest > config.context_length) {
    return invalid_argument("the prompt has " + std::to_string(longest) +
                            " tokens and the model's context is " +
                            std::to_string(config.context_length));
  }
  runtime::EngineOptions engine;
  engine.context_limit =
      longest + std::min(config.context_length - longest, o.max_new_tokens);  // cannot overflow
  engine.scheduler.max_batch = std::min(o.max_batch, static_cast<std::int64_t>(prompts.size()));
  engine.scheduler.chunk_size = std::min(o.chunk_size.value_or(kChunkSize), longest);
  const Result<runtime::SpeculationOptions> speculation = speculation_options(o);
  if (!speculation.ok()) return speculation.status();
  engine.speculation = *speculation;
  engine.latent = latent_options(o);
  engine.prefix.enabled = !o.no_prefix_cache && prompts.size() > 1;
  engine.record_decodes = !o.no_graphs;
  constexpr std::int64_t kLargestPage = 256;  // a last page may hold one token
  engine.pool_tokens = o.pool_tokens > 0
                           ? o.pool_tokens
                           : engine.scheduler.max_batch * (engine.context_limit + kLargestPage);
  return engine;
}

class Run {
 public:
  Run(const GenerateOptions& options, runtime::Session& session, const text::Tokenizer* tokenizer,
      bool streaming)
      : options_(options), session_(session), tokenizer_(tokenizer), streaming_(streaming) {}

  Status submit(const std::vector<Prompt>& prompts) {
    for (const Prompt& prompt : prompts) {
      runtime::RequestOptions request;
      request.max_new_tokens = options_.max_new_tokens;
      request.sampling = options_.sampling;
      request.sampling.seed = options_.common.seed;
      if (!options_.ignore_eos) request.stop_tokens = stop_tokens();
      const Result<runtime::RequestId> id = session_.engine().submit(prompt.tokens, request);
      if (!id.ok()) return id.status();
      ids_.push_back(*id);
      TextStream stream{
          .decoder = {}, .filter = runtime::StopFilter(options_.stop), .text = {}, .tokens = {}};
      if (tokenizer_ != nullptr) stream.decoder.emplace(*tokenizer_);
      streams_.emplace(*id, std::move(stream));
    }
    return {};
  }

  Status run() {
    while (!session_.engine().idle() && !stdout_is_gone()) {
      const Result<std::vector<runtime::Event>> events = session_.engine().step();
      if (!events.ok()) return events.status();
      for (const runtime::Event& event : *events) take(event);
    }
    return {};
  }

  /// In the order of the prompts. The first request that failed is the answer instead.
  Result<std::vector<Generation>> finish(const std::vector<Prompt>& prompts) {
    std::vector<Generation> out;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const runtime::Request request = session_.engine().take(ids_[i]);
      if (request.finish_reason == runtime::FinishReason::failed) return request.failure;
      TextStream& stream = streams_.at(ids_[i]);
      out.push_back({.prompt = prompts[i].text,
                     .prompt_tokens = prompts[i].tokens,
                     .tokens = std::move(stream.tokens),
                     .text = std::move(stream.text),
                     .finish_reason = stream.filter.stopped()
                                          ? "stop"
                                          : std::string(name(request.finish_reason)),
                     .cached_tokens = request.prefix.cached_tokens});
    }
    return out;
  }

 private:
  [[nodiscard]] std::vector<std::int32_t> stop_tokens() const {
    std::vector<std::int32_t> stops = session_.config().eos_tokens;
    if (tokenizer_ != nullptr) {
      const auto& more = tokenizer_->special().stop;
      stops.insert(stops.end(), more.begin(), more.end());
    }
    return stops;
  }

  void take(const runtime::Event& event) {
    TextStream& stream = streams_.at(event.request);
    // A step that verified drafts may bring tokens beyond a stop string.
    if (stream.filter.stopped()) return;
    if (event.token) stream.tokens.push_back(*event.token);
    if (!stream.decoder) return;
    std::string piece;
    if (event.token) piece = stream.filter.push(stream.decoder->push(*event.token));
    if (stream.filter.stopped()) {
      session_.engine().cancel(event.request);
    } else if (event.finish_reason != runtime::FinishReason::none) {
      piece += stream.filter.push(stream.decoder->finish());
      piece += stream.filter.finish();
    }
    stream.text += piece;
    if (streaming_) show(piece);
  }

  const GenerateOptions& options_;
  runtime::Session& session_;
  const text::Tokenizer* tokenizer_;
  bool streaming_;
  std::vector<runtime::RequestId> ids_;
  std::map<runtime::RequestId, TextStream> streams_;
};

int generate(const GenerateOptions& options) {
  if (!options.perplexity)
    if (Status s = check_prompt_options(options); !s.ok()) return report(s);
  const auto families = model::families_of_plugins(options.common.plugins);
  if (!families.ok()) return report(families.status());
  Result<model::Checkpoint> checkpoint =
      model::open_checkpoint(options.common.model, families->get());
  if (!checkpoint.ok()) return report(checkpoint.status());
  if (checkpoint->config.is_encoder_only)
    return report(invalid_argument("this model is an encoder: attune embed runs it"));
  Result<text::TokenizerPtr> tokenizer = runtime::open_tokenizer(*checkpoint);
  if (!tokenizer.ok() && !options.tokens) return report(tokenizer.status());
  const text::Tokenizer* words = tokenizer.ok() ? tokenizer->get() : nullptr;
  if (words == nullptr && !options.stop.empty())
    return report(
        invalid_argument("--stop needs text, and this model has no tokenizer that "
                         "makes tokens into any"));
  if (options.perplexity) return print_perplexity(options, std::move(*checkpoint), *words);

  const Result<std::vector<Prompt>> prompts = read_prompts(options, *checkpoint, words);
  if (!prompts.ok()) return report(prompts.status());
  const Result<runtime::EngineOptions> engine =
      engine_options(options, *prompts, checkpoint->config);
  if (!engine.ok()) return report(engine.status());
  const ModelRun model_run{.weights = options.weights,
                           .weights_cache = options.weights_cache,
                           .batch_invariant = options.batch_invariant,
                           .prefix_cache = !options.no_prefix_cache,
                           .engine = *engine,
                           .calibration = calibration_tokens(options.common, words)};
  Result<std::unique_ptr<runtime::Session>> session =
      open_session(options.common, model_run, std::move(*checkpoint));
  if (!session.ok()) return report(session.status());

  const bool streaming = !options.common.json && prompts->size() == 1 && words != nullptr;
  Run run(options, **session, words, streaming);
  if (Status s = run.submit(*prompts); !s.ok()) return report(s);
  if (Status s = run.run(); !s.ok()) return report(s);
  const Result<std::vector<Generation>> done = run.finish(*prompts);
  if (streaming) show("\n");
  if (!done.ok()) {
    // A pool that the options made too small is an input like any other.
    return report(done.status().code() == StatusCode::out_of_pages
                      ? invalid_argument(done.status().text() + ": raise --pool-tokens")
                      : done.status());
  }
  if (options.common.json) {
    print_json(*done, **session);
    return kDone;
  }
  if (words == nullptr) {
    for (const Generation& g : *done) {
      std::string ids;
      for (std::int32_t token : g.tokens) ids += (ids.empty() ? "" : ",") + std::to_string(token);
      fmt::print("{}\n", ids);
    }
  } else if (!streaming) {
    for (const Generation& g : *done) fmt::print("> {}\n{}\n\n", g.prompt, g.text);
  }
  print_statistics(**session);
  return kDone;
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("generate", "text from a model, streamed");
  auto options = std::make_shared<GenerateOptions>();
  add_generate_options(*command, *options);
  add_examples_and_backends(
      *command,
      {"attune generate --model model.gguf --chat --prompt \"Why is the sky blue?\"",
       "attune generate --model folder --tokens 1,2,3 --attention-backend reference --json",
       "attune generate --model model.gguf --prompt-file prompts.txt --speculate ngram"});
  command->callback([options, &exit_code] { exit_code = generate(*options); });
}

}  // namespace attune::cli
