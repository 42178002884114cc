// The options of attune generate, and the prompts they name (layer cli).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <attune/status.hpp>

#include "cli/command.hpp"
#include "model/checkpoint.hpp"
#include "runtime/latent_form.hpp"
#include "runtime/request.hpp"
#include "runtime/speculation.hpp"
#include "text/tokenizer.hpp"

namespace CLI {
class App;
}

namespace attune::cli {

/// Prompt tokens a step where --chunk-size is not given. Scores need the logits of every row of a
/// step: fewer rows keep those small.
inline constexpr std::int64_t kChunkSize = 512;
inline constexpr std::int64_t kScoredChunkSize = 128;

struct GenerateOptions {
  CommonOptions common;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> tokens;
  std::optional<std::string> perplexity;
  bool chat = false;
  std::string weights = "auto";
  std::string weights_cache;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::int64_t max_new_tokens = 64;
  std::optional<std::int64_t> chunk_size;
  std::int64_t max_batch = 16;
  std::int64_t pool_tokens = 0;
  bool batch_invariant = false;
  bool no_prefix_cache = false;
  bool no_graphs = false;
  std::string latent_form = "auto";
  std::int64_t latent_chunk = 0;
  std::string speculate = "none";
  std::optional<std::int64_t> draft_tokens;
  std::optional<std::int64_t> ngram_min;
  std::optional<std::int64_t> ngram_max;
  std::optional<std::string> verify_drafts;
  runtime::SamplingOptions sampling;
};

void add_generate_options(CLI::App& command, GenerateOptions& options);

/// Exactly one of --prompt, --prompt-file and --tokens, and not empty: checked before any file is
/// opened.
Status check_prompt_options(const GenerateOptions& options);

/// What --speculate and its options ask for; refuses options of a speculation that is off.
Result<runtime::SpeculationOptions> speculation_options(const GenerateOptions& options);

/// What --latent-form and --latent-chunk ask for.
[[nodiscard]] runtime::LatentOptions latent_options(const GenerateOptions& options);

/// One prompt: its text (empty for --tokens) and its ids.
struct Prompt {
  std::string text;
  std::vector<std::int32_t> tokens;
};

/// `tokenizer` may be null for --tokens.
Result<std::vector<Prompt>> read_prompts(const GenerateOptions& options,
                                         const model::Checkpoint& checkpoint,
                                         const text::Tokenizer* tokenizer);

/// A whole file, or the system's reason why not.
Result<std::string> read_file(const std::string& path);

}  // namespace attune::cli
