// The tokenizer that came with a model (layer runtime).
#pragma once

#include <attune/status.hpp>

#include "model/checkpoint.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace attune::runtime {

/// From the GGUF's metadata, or from tokenizer.json or tokenizer.model in the model's folder.
Result<text::TokenizerPtr> open_tokenizer(const model::Checkpoint& checkpoint);

/// chat_template.jinja in the model's folder, or what came with the vocabulary; a model without one
/// is refused.
Result<text::ChatTemplate> open_chat_template(const model::Checkpoint& checkpoint,
                                              const text::Tokenizer& tokenizer);

}  // namespace attune::runtime
