#include "conformance/golden.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "model/checkpoint.hpp"
#include "model/model.hpp"
#include "model/weights/mapped_file.hpp"
#include "model/weights/safetensors.hpp"
#include "runtime/engine.hpp"

namespace attune::conformance {
namespace {

constexpr std::int64_t kWholePrompts = 1024;
constexpr std::int64_t kChunkSizes[] = {kWholePrompts, 7, 16, 33};

template <class T>
Status read_tensor(const std::vector<model::SafetensorsEntry>& entries, const std::string& name,
                   std::string_view dtype, std::vector<T>& out) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const auto& entry) { return entry.name == name; });
  if (found == entries.end())
    return invalid_argument("golden.safetensors has no tensor '" + name + "'");
  if (found->dtype != dtype) {
    return invalid_argument("golden.safetensors: '" + name + "' has dtype " + found->dtype +
                            ", wanted " + std::string(dtype));
  }
  out.resize(found->data.size() / sizeof(T));
  std::memcpy(out.data(), found->data.data(), out.size() * sizeof(T));
  return {};
}

/// One way to run the prompts.
struct Course {
  std::string name;
  std::int32_t page_size = 1;
  std::int64_t chunk_size = kWholePrompts;
  bool decode_all = false;  ///< prefill one token, decode the rest
};

std::vector<Course> courses(std::span<const std::int32_t> page_sizes) {
  std::vector<Course> all;
  for (std::int32_t page_size : page_sizes) {
    const std::string page = "page " + std::to_string(page_size);
    for (std::int64_t chunk : kChunkSizes) {
      const std::string kind =
          chunk == kWholePrompts ? "prefill" : "chunks of " + std::to_string(chunk);
      all.push_back({kind + ", " + page, page_size, chunk, false});
    }
    all.push_back({"decode, " + page, page_size, kWholePrompts, true});
  }
  return all;
}

std::size_t best_of(std::span<const float> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

/// Whether the best golden logit leads by more than rounding can undo.
bool clear_winner(std::span<const float> row, float margin) {
  const std::size_t best = best_of(row);
  for (std::size_t i = 0; i < row.size(); ++i)
    if (i != best && row[best] - row[i] <= margin) return false;
  return true;
}

void compare(const GoldenPrompt& golden, std::span<const float> logits, std::size_t vocab,
             const GoldenTolerance& tolerance, const std::string& where, GoldenOutcome& outcome) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double want = golden.logits[i];
    const double error = std::fabs(logits[i] - want);
    // A NaN is no number of tolerances away; treat it as the worst.
    const double excess = std::isnan(error)
                              ? INFINITY
                              : error / (tolerance.absolute + tolerance.relative * std::fabs(want));
    if (!(error <= outcome.max_abs_err)) outcome.max_abs_err = error;
    if (excess > outcome.max_excess) {
      outcome.max_excess = excess;
      outcome.worst = where + ", position " + std::to_string(i / vocab);
    }
  }
  outcome.num_logits += static_cast<std::int64_t>(logits.size());
  for (std::size_t p = 0; (p + 1) * vocab <= logits.size(); ++p) {
    const std::span<const float> want = std::span(golden.logits).subspan(p * vocab, vocab);
    if (clear_winner(want, tolerance.margin) &&
        best_of(want) != best_of(logits.subspan(p * vocab, vocab)))
      outcome.tokens_match = false;
  }
}

}  // namespace

GoldenTolerance golden_tolerance(DType attention_dtype) {
  switch (attention_dtype) {
    case DType::f16: return {.absolute = 1e-2, .relative = 1e-2, .margin = 2e-2f};
    case DType::bf16: return {.absolute = 8e-2, .relative = 8e-2, .margin = 0.16f};
    default: return {.absolute = 2e-4, .relative = 2e-4, .margin = 1e-3f};
  }
}

Result<std::vector<GoldenPrompt>> load_golden(const std::string& folder, std::int64_t vocab_size) {
  const std::string path = folder + "/golden.safetensors";
  const Result<model::MappedFile> file = model::MappedFile::open(path);
  if (!file.ok()) return file.status();
  const auto entries = model::parse_safetensors(file->bytes(), path);
  if (!entries.ok()) return entries.status();
  std::vector<GoldenPrompt> prompts;
  const auto present = [&](const std::string& name) {
    return std::any_of(entries->begin(), entries->end(),
                       [&](const auto& entry) { return entry.name == name; });
  };
  for (std::size_t i = 0; present("prompt" + std::to_string(i)); ++i) {
    const std::string n = std::to_string(i);
    GoldenPrompt prompt;
    std::vector<std::int32_t> ids;
    if (Status s = read_tensor(*entries, "prompt" + n, "I32", ids); !s.ok()) return s;
    if (Status s = read_tensor(*entries, "tokens" + n, "I32", prompt.tokens); !s.ok()) return s;
    if (Status s = read_tensor(*entries, "all_logits" + n, "F32", prompt.logits); !s.ok()) return s;
    prompt.prompt_len = static_cast<std::int64_t>(ids.size());
    if (ids.empty() || ids.size() > prompt.tokens.size() ||
        !std::equal(ids.begin(), ids.end(), prompt.tokens.begin()) ||
        prompt.logits.size() != prompt.tokens.size() * static_cast<std::size_t>(vocab_size)) {
      return invalid_argument(path + ": prompt" + n + ", tokens" + n + " and all_logits" + n +
                              " do not belong together (vocabulary " + std::to_string(vocab_size) +
                              ")");
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return invalid_argument(path + " has no tensor 'prompt0'");
  return prompts;
}

Result<GoldenOutcome> check_golden(const GoldenRun& run) {
  Result<model::Checkpoint> checkpoint = model::open_checkpoint(run.folder, run.families);
  if (!checkpoint.ok()) return checkpoint.status();
  const std::int64_t vocab_size = checkpoint->config.vocab_size;
  const auto prompts = load_golden(run.folder, vocab_size);
  if (!prompts.ok()) return prompts.status();
  std::int64_t longest = 0;
  for (const GoldenPrompt& p : *prompts)
    longest = std::max(longest, static_cast<std::int64_t>(p.tokens.size()));

  runtime::EngineOptions options;
  options.context_limit = longest;
  options.keep_logits = true;
  options.scheduler.max_batch = static_cast<std::int64_t>(prompts->size());
  options.scheduler.chunk_size = kWholePrompts;
  options.pool_tokens = options.scheduler.max_batch * (longest + 64);

  std::unique_ptr<model::Model> model;
  GoldenOutcome outcome;
  Status refusal;
  for (const Course& course : courses(run.page_sizes)) {
    Result<runtime::BackendSet> backends = run.make_backends(checkpoint->config, course.page_size);
    if (backends.status().code() == StatusCode::unsupported) {
      refusal = backends.status();
      outcome.not_run = "page size " + std::to_string(course.page_size) + ": " + refusal.text();
      continue;
    }
    if (!backends.ok()) return backends.status();
    // Page sizes do not change what the model is made for, so its weights are loaded once.
    if (!model) {
      auto made = model::Model::make(checkpoint->config, backends->attention, *checkpoint->weights,
                                     *run.ops, runtime::model_options(options, *backends));
      if (!made.ok()) return made.status();
      model = std::move(*made);
    }
    options.scheduler.chunk_size = course.chunk_size;
    auto engine = runtime::Engine::make(*model, *run.ops, std::move(*backends), options);
    if (!engine.ok()) return engine.status();

    std::vector<runtime::RequestId> ids;
    for (const GoldenPrompt& p : *prompts) {
      const std::size_t given = course.decode_all ? 1 : static_cast<std::size_t>(p.prompt_len);
      runtime::RequestOptions request;
      request.want_logits = true;
      request.forced_tokens.assign(p.tokens.begin() + static_cast<std::ptrdiff_t>(given),
                                   p.tokens.end());
      request.max_new_tokens = static_cast<std::int64_t>(request.forced_tokens.size());
      const auto id = (*engine)->submit(std::span(p.tokens).first(given), request);
      if (!id.ok()) return id.status();
      ids.push_back(*id);
    }
    while (!(*engine)->idle()) {
      const auto events = (*engine)->step();
      if (!events.ok()) return events.status();
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const runtime::Request done = (*engine)->take(ids[i]);
      if (done.finish_reason == runtime::FinishReason::failed) return done.failure;
      const GoldenPrompt& golden = (*prompts)[i];
      if (done.logits.size() != golden.logits.size()) {
        return internal_error(course.name + ": " + std::to_string(done.logits.size()) +
                              " logits, wanted " + std::to_string(golden.logits.size()));
      }
      compare(golden, done.logits, static_cast<std::size_t>(vocab_size), run.tolerance,
              course.name + ", prompt " + std::to_string(i), outcome);
    }
  }
  if (outcome.num_logits == 0) return refusal;
  return outcome;
}

}  // namespace attune::conformance
