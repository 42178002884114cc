// A template cut into tokens, white space control done: trim_blocks and lstrip_blocks are on, as in
// Hugging Face's environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

namespace attune::text::jinja {

enum class TokenKind {
  data,            ///< text outside tags
  variable_begin,  ///< {{
  variable_end,
  block_begin,  ///< {%
  block_end,
  name,
  integer,
  real,
  string,  ///< unescaped
  op,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text = {};
  int line = 1;
};

/// The last token is of kind `end`.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace attune::text::jinja
