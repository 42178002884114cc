// tokenizer_config.json: the roles of tokens and the chat template. Included by .cpp files only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <attune/status.hpp>

#include "text/tokenizer.hpp"

namespace attune::text {

struct TokenizerConfig {
  SpecialTokens special;
  std::string chat_template;
  /// For vocabularies whose own file does not say what surrounds a sequence.
  std::optional<bool> add_bos, add_eos;
};

/// An empty text gives an empty config. `id_of` finds a token named in it.
Result<TokenizerConfig> read_tokenizer_config(
    std::string_view text, const std::function<std::optional<TokenId>(std::string_view)>& id_of);

}  // namespace attune::text
