// The keys `tokenizer.*` of a GGUF file as plain data; whoever reads the file fills it in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/token_id.hpp"

namespace attune::text {

/// Values of tokenizer.ggml.token_type.
enum class GgufTokenType : std::int32_t {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

struct GgufVocabulary {
  std::string model = {};                ///< tokenizer.ggml.model: gpt2, llama, bert, t5
  std::string pre = {};                  ///< tokenizer.ggml.pre
  std::vector<std::string> tokens = {};  ///< tokenizer.ggml.tokens, by id
  std::vector<float> scores = {};        ///< tokenizer.ggml.scores, empty or one for each token
  std::vector<GgufTokenType> token_types = {};  ///< tokenizer.ggml.token_type, likewise
  std::vector<std::string> merges = {};         ///< tokenizer.ggml.merges: "left right"
  std::string precompiled_charsmap = {};        ///< tokenizer.ggml.precompiled_charsmap

  // tokenizer.ggml.<name>_token_id
  std::optional<TokenId> bos = {}, eos = {}, eot = {}, eom = {}, unk = {}, sep = {}, pad = {},
                         cls = {}, mask = {};

  // tokenizer.ggml.<name>; where absent the model kind decides.
  std::optional<bool> add_bos_token = {}, add_eos_token = {}, add_sep_token = {},
                      add_space_prefix = {}, remove_extra_whitespaces = {};

  std::string chat_template = {};  ///< tokenizer.chat_template
};

}  // namespace attune::text
