#include "text/jinja/expression_parser.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja/library.hpp"
#include "text/jinja/run.hpp"

namespace attune::text::jinja {

Token ExpressionParser::take() {
  Token token = now();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::take_op(std::string_view op) {
  if (!at_op(op)) return false;
  take();
  return true;
}

bool ExpressionParser::take_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::want_op(std::string_view op) {
  if (!take_op(op)) fail_unexpected("'" + std::string(op) + "'");
}

std::string ExpressionParser::want_name() {
  if (!at(TokenKind::name)) {
    fail_unexpected("a name");
    return {};
  }
  return take().text;
}

void ExpressionParser::fail(const std::string& text) {
  if (!failed()) {
    error_ = invalid_argument("chat template, line " + std::to_string(now().line) + ": " + text);
  }
  at_ = tokens_.size() - 1;
}

void ExpressionParser::fail_unexpected(std::string_view wanted) {
  std::string have = "'" + now().text + "'";
  if (at(TokenKind::end))
    have = "the end of the template";
  else if (at(TokenKind::block_end))
    have = "'%}'";
  else if (at(TokenKind::variable_end))
    have = "'}}'";
  fail("want " + std::string(wanted) + ", have " + have);
}

bool ExpressionParser::Nesting::deeper() {
  if (++parser_.depth_ > kSyntaxDepthLimit) parser_.fail("the syntax nests too deep");
  return !parser_.failed();
}

ExprPtr ExpressionParser::binary(BinaryOp op, ExprPtr left, ExprPtr right) {
  return make(Binary{op, std::move(left), std::move(right)});
}

ExprPtr ExpressionParser::tuple_or_expression(bool with_conditional) {
  const auto one = [&] { return with_conditional ? expression() : logical_or(); };
  ExprPtr first = one();
  if (!at_op(",")) return first;
  ListDisplay tuple{.items = {}, .tuple = true};
  tuple.items.push_back(std::move(first));
  while (take_op(",")) {
    if (at(TokenKind::block_end) || at(TokenKind::variable_end) || at_op(")")) break;
    tuple.items.push_back(one());
  }
  return make(std::move(tuple));
}

ExprPtr ExpressionParser::expression() {
  Nesting nesting(*this);
  if (!nesting.deeper()) return nullptr;
  ExprPtr value = logical_or();
  while (at_name("if") && nesting.deeper()) {
    take();
    ExprPtr condition = logical_or();
    ExprPtr otherwise = take_name("else") ? expression() : nullptr;
    value = make(Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExprPtr ExpressionParser::logical_or() {
  Nesting nesting(*this);
  ExprPtr left = logical_and();
  while (take_name("or") && nesting.deeper())
    left = binary(BinaryOp::logical_or, std::move(left), logical_and());
  return left;
}

ExprPtr ExpressionParser::logical_and() {
  Nesting nesting(*this);
  ExprPtr left = logical_not();
  while (take_name("and") && nesting.deeper())
    left = binary(BinaryOp::logical_and, std::move(left), logical_not());
  return left;
}

ExprPtr ExpressionParser::logical_not() {
  if (!at_name("not")) return comparison();
  take();
  Nesting nesting(*this);
  if (!nesting.deeper()) return nullptr;
  ExprPtr operand = logical_not();
  return make(Unary{UnaryOp::logical_not, std::move(operand)});
}

ExprPtr ExpressionParser::comparison() {
  constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kOps{{{"==", CompareOp::eq},
                                                                        {"!=", CompareOp::ne},
                                                                        {"<", CompareOp::lt},
                                                                        {"<=", CompareOp::le},
                                                                        {">", CompareOp::gt},
                                                                        {">=", CompareOp::ge}}};
  Compare compare{sum(), {}};
  while (!failed()) {
    const auto op = std::find_if(kOps.begin(), kOps.end(),
                                 [this](const auto& row) { return at_op(row.first); });
    if (op != kOps.end()) {
      take();
      compare.rest.emplace_back(op->second, sum());
    } else if (take_name("in")) {
      compare.rest.emplace_back(CompareOp::in, sum());
    } else if (at_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") {
      take();
      take();
      compare.rest.emplace_back(CompareOp::not_in, sum());
    } else {
      break;
    }
  }
  if (compare.rest.empty()) return std::move(compare.first);
  return make(std::move(compare));
}

ExprPtr ExpressionParser::sum() {
  Nesting nesting(*this);
  ExprPtr left = concatenation();
  while (nesting.deeper()) {
    if (take_op("+"))
      left = binary(BinaryOp::add, std::move(left), concatenation());
    else if (take_op("-"))
      left = binary(BinaryOp::sub, std::move(left), concatenation());
    else
      break;
  }
  return left;
}

ExprPtr ExpressionParser::concatenation() {
  Nesting nesting(*this);
  ExprPtr left = product();
  while (take_op("~") && nesting.deeper())
    left = binary(BinaryOp::concat, std::move(left), product());
  return left;
}

ExprPtr ExpressionParser::product() {
  Nesting nesting(*this);
  ExprPtr left = power();
  while (nesting.deeper()) {
    if (take_op("*"))
      left = binary(BinaryOp::mul, std::move(left), power());
    else if (take_op("//"))
      left = binary(BinaryOp::floor_div, std::move(left), power());
    else if (take_op("/"))
      left = binary(BinaryOp::div, std::move(left), power());
    else if (take_op("%"))
      left = binary(BinaryOp::mod, std::move(left), power());
    else
      break;
  }
  return left;
}

ExprPtr ExpressionParser::power() {
  Nesting nesting(*this);
  ExprPtr left = unary(true);
  while (take_op("**") && nesting.deeper())
    left = binary(BinaryOp::pow, std::move(left), unary(true));
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  Nesting nesting(*this);
  if (!nesting.deeper()) return nullptr;
  ExprPtr value;
  if (take_op("-"))
    value = make(Unary{UnaryOp::minus, unary(false)});
  else if (take_op("+"))
    value = make(Unary{UnaryOp::plus, unary(false)});
  else
    value = primary();
  value = postfix(std::move(value));
  if (with_filters) value = filters_and_tests(std::move(value));
  return value;
}

ExprPtr ExpressionParser::primary() {
  if (at(TokenKind::string)) {
    std::string text;
    while (at(TokenKind::string)) text += take().text;  // neighbours are one string
    return make(Literal{std::move(text)});
  }
  if (at(TokenKind::integer) || at(TokenKind::real)) return number();
  if (at(TokenKind::name)) {
    const std::string name = take().text;
    if (name == "true" || name == "True") return make(Literal{true});
    if (name == "false" || name == "False") return make(Literal{false});
    if (name == "none" || name == "None") return make(Literal{Value::none()});
    return make(Name{name});
  }
  if (take_op("(")) return parenthesised();
  if (take_op("[")) return list_display();
  if (take_op("{")) return dict_display();
  fail_unexpected("an expression");
  return nullptr;
}

ExprPtr ExpressionParser::number() {
  const Token token = take();
  const char* end = token.text.data() + token.text.size();
  if (token.kind == TokenKind::integer) {
    std::int64_t value = 0;
    if (std::from_chars(token.text.data(), end, value).ec == std::errc{})
      return make(Literal{value});
  } else {
    double value = 0;
    if (std::from_chars(token.text.data(), end, value).ec == std::errc{})
      return make(Literal{value});
  }
  fail("the number " + token.text + " is out of range");
  return nullptr;
}

ExprPtr ExpressionParser::parenthesised() {
  if (take_op(")")) return make(ListDisplay{.items = {}, .tuple = true});
  ExprPtr value = tuple_or_expression();
  want_op(")");
  return value;
}

ExprPtr ExpressionParser::list_display() {
  ListDisplay list;
  while (!failed() && !at_op("]")) {
    list.items.push_back(expression());
    if (!take_op(",")) break;
  }
  want_op("]");
  return make(std::move(list));
}

ExprPtr ExpressionParser::dict_display() {
  DictDisplay dict;
  while (!failed() && !at_op("}")) {
    ExprPtr key = expression();
    want_op(":");
    dict.members.emplace_back(std::move(key), expression());
    if (!take_op(",")) break;
  }
  want_op("}");
  return make(std::move(dict));
}

ExprPtr ExpressionParser::postfix(ExprPtr value) {
  Nesting nesting(*this);
  while (nesting.deeper()) {
    if (take_op(".")) {
      if (at(TokenKind::integer)) {
        ExprPtr index = number();
        value = make(Subscript{std::move(value), std::move(index)});
      } else {
        std::string name = want_name();
        value = make(Attribute{std::move(value), std::move(name)});
      }
    } else if (take_op("[")) {
      value = subscript(std::move(value));
    } else if (take_op("(")) {
      Arguments arguments = call_arguments();
      value = make(Call{std::move(value), std::move(arguments)});
    } else {
      break;
    }
  }
  return value;
}

ExprPtr ExpressionParser::subscript(ExprPtr object) {
  ExprPtr start = at_op(":") ? nullptr : expression();
  if (take_op("]")) return make(Subscript{std::move(object), std::move(start)});
  want_op(":");
  const auto part = [this] { return at_op(":") || at_op("]") ? nullptr : expression(); };
  ExprPtr stop = part();
  ExprPtr step = take_op(":") ? part() : nullptr;
  want_op("]");
  return make(Slice{std::move(object), std::move(start), std::move(stop), std::move(step)});
}

Arguments ExpressionParser::call_arguments() {
  Arguments arguments;
  while (!failed() && !at_op(")")) {
    if (at_op("*") || at_op("**")) {
      fail("arguments by * and ** are not supported");
    } else if (at(TokenKind::name) && ahead().kind == TokenKind::op && ahead().text == "=") {
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), expression());
    } else {
      arguments.positional.push_back(expression());
    }
    if (!take_op(",")) break;
  }
  want_op(")");
  return arguments;
}

Filter ExpressionParser::filter(ExprPtr value) {
  std::string name = want_name();
  if (!failed() && !find_filter(name)) fail("no filter is called \"" + name + "\"");
  Filter filter{std::move(value), std::move(name), {}};
  if (take_op("(")) filter.arguments = call_arguments();
  return filter;
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr value) {
  Nesting nesting(*this);
  while (nesting.deeper()) {
    if (take_op("|")) {
      value = make(filter(std::move(value)));
    } else if (take_name("is")) {
      value = test(std::move(value));
    } else if (take_op("(")) {
      Arguments arguments = call_arguments();
      value = make(Call{std::move(value), std::move(arguments)});
    } else {
      break;
    }
  }
  return value;
}

ExprPtr ExpressionParser::test(ExprPtr value) {
  constexpr std::array<std::string_view, 7> kNoArgument{"else", "or", "and", "if",
                                                        "is",   "in", "not"};
  Test test{std::move(value), {}, {}, take_name("not")};
  test.name = want_name();
  if (!failed() && !find_test(test.name)) fail("no test is called \"" + test.name + "\"");
  const bool word = at(TokenKind::name) && std::find(kNoArgument.begin(), kNoArgument.end(),
                                                     now().text) == kNoArgument.end();
  if (take_op("(")) {
    test.arguments = call_arguments();
  } else if (word || at(TokenKind::string) || at(TokenKind::integer) || at(TokenKind::real) ||
             at_op("[") || at_op("{")) {
    test.arguments.positional.push_back(postfix(primary()));
  }
  return make(std::move(test));
}

}  // namespace attune::text::jinja
