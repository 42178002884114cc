// The expression half of the parser, and the token cursor that both halves share.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

#include "text/jinja/ast.hpp"
#include "text/jinja/lexer.hpp"

namespace attune::text::jinja {

/// Keeps the first error; after it the cursor stands at the end and everything parses to nothing.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] const Token& ahead() const {
    return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_];
  }
  Token take();
  [[nodiscard]] bool at(TokenKind kind) const { return now().kind == kind; }
  [[nodiscard]] bool at_op(std::string_view op) const {
    return at(TokenKind::op) && now().text == op;
  }
  [[nodiscard]] bool at_name(std::string_view name) const {
    return at(TokenKind::name) && now().text == name;
  }
  bool take_op(std::string_view op);
  bool take_name(std::string_view name);
  void want_op(std::string_view op);
  std::string want_name();

  void fail(const std::string& text);
  void fail_unexpected(std::string_view wanted);
  [[nodiscard]] bool failed() const { return !error_.ok(); }
  [[nodiscard]] const Status& error() const { return error_; }

  /// Counts how deep the syntax nests; gives back what it counted when its scope ends. A chain such
  /// as a + b + c nests to the left, one level for each link.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser), before_(parser.depth_) {}
    ~Nesting() { parser_.depth_ = before_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    /// One level more; false, with an error, where that is too deep.
    bool deeper();

   private:
    ExpressionParser& parser_;
    int before_;
  };

  /// expression, expression, ... where there is a comma; null on error.
  ExprPtr tuple_or_expression(bool with_conditional = true);
  ExprPtr expression();
  ExprPtr logical_or();
  Arguments call_arguments();
  /// | name or | name(...), after the bar was read; `value` may be null.
  Filter filter(ExprPtr value);

 private:
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr postfix(ExprPtr value);
  ExprPtr filters_and_tests(ExprPtr value);
  ExprPtr test(ExprPtr value);
  ExprPtr subscript(ExprPtr object);
  ExprPtr parenthesised();
  ExprPtr list_display();
  ExprPtr dict_display();
  ExprPtr number();
  ExprPtr binary(BinaryOp op, ExprPtr left, ExprPtr right);

  template <class Node>
  ExprPtr make(Node node) const {
    return std::make_unique<Expr>(Expr{now().line, std::move(node)});
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Status error_;
  int depth_ = 0;
};

}  // namespace attune::text::jinja
