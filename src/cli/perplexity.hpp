// attune generate --perplexity: what a model, a KV type or a backend costs in quality (layer cli).
#pragma once

#include "cli/generate_options.hpp"
#include "model/checkpoint.hpp"
#include "text/tokenizer.hpp"

namespace attune::cli {

/// exp of the mean negative log-likelihood a token, over the file cut into windows of the context.
int print_perplexity(const GenerateOptions& options, model::Checkpoint checkpoint,
                     const text::Tokenizer& tokenizer);

}  // namespace attune::cli
