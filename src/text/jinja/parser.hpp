// Tokens to a syntax tree.
#pragma once

#include <vector>

#include <attune/status.hpp>

#include "text/jinja/ast.hpp"
#include "text/jinja/lexer.hpp"

namespace attune::text::jinja {

Result<Block> parse(std::vector<Token> tokens);

}  // namespace attune::text::jinja
