#include "cli/generate_options.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/sampler.hpp"
#include "runtime/tokenizer_files.hpp"
#include "text/chat_template.hpp"

namespace attune::cli {
namespace {

/// With the newest token eight rows: products of plain weights read those at once.
constexpr std::int64_t kDraftTokens = 7;

Result<std::vector<std::int32_t>> parse_tokens(std::string_view text) {
  std::vector<std::int32_t> tokens;
  std::size_t begin = 0;
  while (begin <= text.size() && !text.empty()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, comma - begin);
    std::int32_t token = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || end != word.data() + word.size()) {
      return invalid_argument("--tokens: '" + std::string(word) +
                              "' is not a token id, wanted e.g. 1,2,3");
    }
    tokens.push_back(token);
    begin = comma + 1;
  }
  if (tokens.empty()) return invalid_argument("--tokens is empty: wanted e.g. 1,2,3");
  return tokens;
}

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

/// One prompt a line; of a .jsonl file, one JSON string a line, so that a prompt may have several.
Result<std::vector<std::string>> prompts_of_file(const std::string& path) {
  const Result<std::string> content = read_file(path);
  if (!content.ok()) return content.status();
  const bool json = path.ends_with(".jsonl");
  std::vector<std::string> prompts;
  std::size_t begin = 0;
  for (std::size_t line = 1; begin < content->size(); ++line) {
    const std::size_t end = std::min(content->find('\n', begin), content->size());
    std::string text = content->substr(begin, end - begin);
    begin = end + 1;
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (blank(text)) continue;
    if (json) {
      const auto parsed = nlohmann::json::parse(text, nullptr, false);
      if (!parsed.is_string()) {
        return invalid_argument(path + ", line " + std::to_string(line) + ": wanted a JSON string");
      }
      text = parsed.get<std::string>();
    }
    prompts.push_back(std::move(text));
  }
  if (prompts.empty()) return invalid_argument(path + " holds no prompt: wanted one a line");
  return prompts;
}

/// One user turn, as the template writes it. The template brings the special tokens itself.
Result<std::vector<text::TokenId>> encode_turn(const text::ChatTemplate& chat,
                                               const text::Tokenizer& tokenizer,
                                               const std::string& text) {
  const Result<std::string> turn =
      chat.render({.messages = {{.role = "user", .content = text}},
                   .special_tokens = text::named_special_tokens(tokenizer),
                   .now = static_cast<std::int64_t>(std::time(nullptr))});
  if (!turn.ok()) return turn.status();
  return tokenizer.encode(*turn, {.add_special = false, .parse_special = true});
}

/// What is continued, and where it ends.
void add_text_options(CLI::App& command, GenerateOptions& o) {
  command.add_option("--prompt", o.prompt, "text to continue");
  command.add_option("--prompt-file", o.prompt_file,
                     "one prompt a line (of a .jsonl file: one JSON string a line); all run at "
                     "once, by continuous batching");
  command.add_option("--tokens", o.tokens, "token ids to continue, e.g. 1,2,3; needs no tokenizer");
  command.add_option("--perplexity", o.perplexity,
                     "instead of generating: the perplexity of a text file");
  command.add_flag("--chat", o.chat, "apply the model's chat template to each prompt");
  command.add_option("--max-new-tokens", o.max_new_tokens, "tokens to generate")
      ->check(zero_or_more())
      ->capture_default_str();
  command.add_option("--stop", o.stop, "end at this text, which is not shown; repeatable");
  command.add_flag("--ignore-eos", o.ignore_eos, "go on after the model's end tokens");
}

/// How a token is chosen.
void add_sampling_options(CLI::App& command, GenerateOptions& o) {
  command.add_option("--temperature", o.sampling.temperature, "0 = greedy")->capture_default_str();
  command.add_option("--top-k", o.sampling.top_k, "keep the k best; 0 = all")
      ->capture_default_str();
  command.add_option("--top-p", o.sampling.top_p, "keep the best that reach this probability")
      ->capture_default_str();
  command.add_option("--min-p", o.sampling.min_p, "keep those of this share of the best's")
      ->capture_default_str();
  command.add_option("--repetition-penalty", o.sampling.repetition_penalty, "1 = off")
      ->capture_default_str();
}

/// How the engine runs requests.
void add_engine_options(CLI::App& command, GenerateOptions& o) {
  command
      .add_option("--chunk-size", o.chunk_size,
                  "prompt tokens a step (" + std::to_string(kChunkSize) + "; with --perplexity " +
                      std::to_string(kScoredChunkSize) + ")")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command.add_option("--max-batch", o.max_batch, "requests that run at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      .add_option("--pool-tokens", o.pool_tokens,
                  "tokens the KV pool holds; 0 = enough for the requests that run at once")
      ->check(zero_or_more())
      ->capture_default_str();
  command
      .add_option("--weights", o.weights,
                  "auto, as_stored (CPUs only), bf16 or fp32: what the weights are kept as")
      ->capture_default_str();
  command
      .add_option("--weights-cache", o.weights_cache,
                  "on a CPU: a file to keep the converted weights in; made when it is absent or of "
                  "another model, and read by later runs, which load sooner")
      ->check(not_empty());
  command.add_flag("--batch-invariant", o.batch_invariant,
                   "a request's output must not depend on its neighbours or on what is cached, bit "
                   "for bit; a step of a prompt is 64 tokens at least");
  command.add_flag("--no-prefix-cache", o.no_prefix_cache,
                   "compute every prompt whole, also where it begins like another");
  command.add_flag(
      "--no-graphs", o.no_graphs,
      "launch every kernel of a decode step anew; on a GPU a step is recorded once and "
      "replayed");
  command
      .add_option("--latent-form", o.latent_form,
                  "how latent attention (MLA) computes prompts: auto (the cheaper form, step by "
                  "step), absorbed or expanded")
      ->check(CLI::IsMember({"auto", "absorbed", "expanded"}))
      ->capture_default_str();
  command
      .add_option("--latent-chunk", o.latent_chunk,
                  "cached latents that are expanded at once; 0 = " +
                      std::to_string(runtime::LatentOptions{}.chunk_tokens))
      ->check(zero_or_more());
}

void add_speculation_options(CLI::App& command, GenerateOptions& o) {
  command
      .add_option("--speculate", o.speculate,
                  "none or ngram: guess the next tokens from earlier ones and verify them in one "
                  "step; the tokens are the same, sooner where text repeats")
      ->check(CLI::IsMember({"none", "ngram"}))
      ->capture_default_str();
  const runtime::SpeculationOptions defaults;
  command.add_option(
      "--draft-tokens", o.draft_tokens,
      "with --speculate: tokens guessed ahead at most (" + std::to_string(kDraftTokens) + ")");
  command.add_option("--ngram-min", o.ngram_min,
                     "with --speculate ngram: the fewest last tokens that are looked up (" +
                         std::to_string(defaults.min_ngram) + ")");
  command.add_option(
      "--ngram-max", o.ngram_max,
      "with --speculate ngram: the most (" + std::to_string(defaults.max_ngram) + ")");
  command
      .add_option("--verify-drafts", o.verify_drafts,
                  "with --speculate: exact (each draft as a decode, the default) or together (one "
                  "batch a request, which reads keys once and may round near-ties otherwise)")
      ->check(CLI::IsMember({"exact", "together"}));
}

}  // namespace

void add_generate_options(CLI::App& command, GenerateOptions& o) {
  add_common_options(command, o.common);
  add_text_options(command, o);
  add_sampling_options(command, o);
  add_engine_options(command, o);
  add_speculation_options(command, o);
  // A file is scored as it is: nothing is generated, and one window runs at a time.
  CLI::Option* perplexity = command.get_option("--perplexity");
  for (const char* other :
       {"--prompt",         "--prompt-file",        "--tokens",       "--chat",
        "--max-new-tokens", "--temperature",        "--top-k",        "--top-p",
        "--min-p",          "--repetition-penalty", "--stop",         "--ignore-eos",
        "--seed",           "--max-batch",          "--pool-tokens",  "--no-prefix-cache",
        "--no-graphs",      "--speculate",          "--draft-tokens", "--ngram-min",
        "--ngram-max",      "--verify-drafts"})
    perplexity->excludes(command.get_option(other));
}

Result<runtime::SpeculationOptions> speculation_options(const GenerateOptions& options) {
  runtime::SpeculationOptions s;
  if (options.speculate == "none") {
    for (const auto& [name, given] :
         {std::pair("--draft-tokens", options.draft_tokens.has_value()),
          std::pair("--ngram-min", options.ngram_min.has_value()),
          std::pair("--ngram-max", options.ngram_max.has_value()),
          std::pair("--verify-drafts", options.verify_drafts.has_value())}) {
      if (given) return invalid_argument(std::string(name) + " needs --speculate ngram");
    }
    return s;
  }
  s.max_drafts = options.draft_tokens.value_or(kDraftTokens);
  s.min_ngram = options.ngram_min.value_or(s.min_ngram);
  s.max_ngram = options.ngram_max.value_or(std::max(s.min_ngram, s.max_ngram));
  s.verify_as_decodes = options.verify_drafts.value_or("exact") == "exact";
  if (options.batch_invariant && !s.verify_as_decodes)
    return invalid_argument(
        "--verify-drafts together rounds otherwise than decoding: it does not go with "
        "--batch-invariant");
  if (s.max_drafts < 1)
    return invalid_argument("--draft-tokens is " + std::to_string(s.max_drafts) +
                            ", wanted at least 1; --speculate none guesses nothing");
  if (Status bad = runtime::validate_speculation(s); !bad.ok()) return bad;
  return s;
}

runtime::LatentOptions latent_options(const GenerateOptions& options) {
  runtime::LatentOptions latent;
  if (options.latent_form != "auto")
    latent.form = options.latent_form == "expanded" ? runtime::LatentForm::expanded
                                                    : runtime::LatentForm::absorbed;
  if (options.latent_chunk > 0) latent.chunk_tokens = options.latent_chunk;
  return latent;
}

Result<std::string> read_file(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown))
    return invalid_argument(path + " is a folder, wanted a file");
  std::ifstream file(path, std::ios::binary);  // or a pipe
  if (!file.is_open()) return invalid_argument("cannot read " + path + ": " + std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return invalid_argument("cannot read " + path + " to its end");
  return text.str();
}

Status check_prompt_options(const GenerateOptions& options) {
  const int given = int{options.prompt.has_value()} + int{options.prompt_file.has_value()} +
                    int{options.tokens.has_value()};
  if (given != 1) {
    return invalid_argument("wanted exactly one of --prompt, --prompt-file and --tokens, have " +
                            std::to_string(given));
  }
  if (options.tokens && options.chat)
    return invalid_argument("--chat needs text: it does not go with --tokens");
  if (options.prompt && options.prompt->empty()) return invalid_argument("--prompt is empty");
  for (const std::string& stop : options.stop)
    if (stop.empty()) return invalid_argument("--stop is empty: wanted the text to end at");
  return runtime::validate(options.sampling);
}

Result<std::vector<Prompt>> read_prompts(const GenerateOptions& options,
                                         const model::Checkpoint& checkpoint,
                                         const text::Tokenizer* tokenizer) {
  if (options.tokens) {
    Result<std::vector<std::int32_t>> tokens = parse_tokens(*options.tokens);
    if (!tokens.ok()) return tokens.status();
    return std::vector<Prompt>{{.text = {}, .tokens = std::move(*tokens)}};
  }
  std::vector<std::string> texts;
  if (options.prompt) {
    texts.push_back(*options.prompt);
  } else {
    Result<std::vector<std::string>> lines = prompts_of_file(*options.prompt_file);
    if (!lines.ok()) return lines.status();
    texts = std::move(*lines);
  }
  std::optional<text::ChatTemplate> chat;
  if (options.chat) {
    Result<text::ChatTemplate> opened = runtime::open_chat_template(checkpoint, *tokenizer);
    if (!opened.ok()) return opened.status();
    chat = std::move(*opened);
  }
  std::vector<Prompt> prompts;
  for (std::string& text : texts) {
    const Result<std::vector<text::TokenId>> ids =
        chat ? encode_turn(*chat, *tokenizer, text) : tokenizer->encode(text);
    if (!ids.ok()) return ids.status();
    prompts.push_back({.text = std::move(text), .tokens = *ids});
  }
  return prompts;
}

}  // namespace attune::cli
