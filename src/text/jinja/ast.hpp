// The syntax tree of a template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/value.hpp"

namespace attune::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListDisplay {
  std::vector<ExprPtr> items;
  bool tuple = false;
};
struct DictDisplay {
  std::vector<std::pair<ExprPtr, ExprPtr>> members;
};
enum class UnaryOp { logical_not, minus, plus };
struct Unary {
  UnaryOp op;
  ExprPtr operand;
};
enum class BinaryOp { add, sub, mul, div, floor_div, mod, pow, concat, logical_and, logical_or };
struct Binary {
  BinaryOp op;
  ExprPtr left, right;
};
enum class CompareOp { eq, ne, lt, le, gt, ge, in, not_in };
struct Compare {
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;  ///< a < b < c is a < b and b < c
};
struct Attribute {
  ExprPtr object;
  std::string name;
};
struct Subscript {
  ExprPtr object, index;
};
struct Slice {
  ExprPtr object, start, stop, step;  ///< the last three may be null
};
struct Call {
  ExprPtr callee;
  Arguments arguments;
};
struct Filter {
  ExprPtr value;
  std::string name;
  Arguments arguments;
};
struct Test {
  ExprPtr value;
  std::string name;
  Arguments arguments;
  bool negated = false;
};
struct Conditional {
  ExprPtr condition, then, otherwise;  ///< `otherwise` may be null
};

struct Expr {
  int line = 1;
  std::variant<Literal, Name, ListDisplay, DictDisplay, Unary, Binary, Compare, Attribute,
               Subscript, Slice, Call, Filter, Test, Conditional>
      node;
};

struct Statement;
using Block = std::vector<Statement>;

/// What an assignment or a loop writes to.
struct Target {
  std::vector<std::string> names;  ///< several: the value is taken apart
  std::string attribute = {};      ///< names[0].attribute, of a namespace
};

struct Text {
  std::string text;
};
struct Print {
  ExprPtr value;
};
struct If {
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExprPtr items, condition;  ///< `condition` may be null
  Block body, otherwise;
};
struct Set {
  Target target;
  ExprPtr value;
};
/// {% set x %}...{% endset %} and {% filter f %}...{% endfilter %}: the rendered body, filtered.
struct Capture {
  std::optional<Target> target;  ///< printed where there is none
  Block body;
  std::vector<Filter> filters;  ///< their `value` is null
};
struct With {
  std::vector<std::pair<std::string, ExprPtr>> variables;
  Block body;
};
struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  ///< a default may be null
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 1;
  std::variant<Text, Print, If, For, Set, Capture, With, Macro, Break, Continue> node;
};

}  // namespace attune::text::jinja
