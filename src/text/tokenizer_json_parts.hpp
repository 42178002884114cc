// The parts of tokenizer.json, each read by one function. Included by .cpp files only.
#pragma once

#include <memory>
#include <vector>

#include "text/added_tokens.hpp"
#include "text/decoder.hpp"
#include "text/json_reader.hpp"
#include "text/normalizer.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/subword_model.hpp"

namespace attune::text {

// These leave what is wrong in the reader's status.
std::vector<NormalizerStep> read_normalizer(const JsonReader& json);
std::vector<PreTokenizerStep> read_pre_tokenizer(const JsonReader& json);
std::vector<DecoderStep> read_decoder(const JsonReader& json);

/// `byte_level`: pre-tokens come as raw bytes (BPE only). Control tokens among `added` are hidden
/// from the text.
Result<std::unique_ptr<SubwordModel>> read_model(const JsonReader& json, bool byte_level,
                                                 const std::vector<AddedToken>& added);

/// Whether the model is a BPE that can take raw bytes in place of the byte alphabet.
bool takes_raw_bytes(const JsonReader& model);

}  // namespace attune::text
