// The tokenizer that came with a model (layer runtime).
#pragma once

#include <attune/status.hpp>

#include "model/checkpoint.hpp"
#include "text/tokenizer.hpp"

namespace attune::runtime {

/// From the GGUF's metadata, or from tokenizer.json or tokenizer.model in the model's folder.
Result<text::TokenizerPtr> open_tokenizer(const model::Checkpoint& checkpoint);

}  // namespace attune::runtime
