// The tokenizer as a pipeline of data: added tokens, normaliser, pre-tokenizer, model, frame; and
// back through the decoder. Every file format is read into these parts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/added_tokens.hpp"
#include "text/decoder.hpp"
#include "text/normalizer.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/subword_model.hpp"
#include "text/tokenizer.hpp"

namespace attune::text {

/// Ids put around an encoded sequence.
struct SpecialFrame {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

struct PipelineParts {
  std::unique_ptr<SubwordModel> model;
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  SpecialFrame frame;
  std::vector<DecoderStep> decoder;
  SpecialTokens special;  ///< `stop` is completed from the names of the added tokens
  std::string chat_template;
};

Result<TokenizerPtr> make_pipeline(PipelineParts parts);

}  // namespace attune::text
