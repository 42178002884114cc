#include "text/jinja/parser.hpp"

#include <algorithm>

#include "text/jinja/expression_parser.hpp"

namespace attune::text::jinja {
namespace {

class Parser final : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Block> run() {
    Block block = body({});
    if (failed()) return error();
    return block;
  }

 private:
  /// Statements up to a block whose name is in `ends`, which is left unread after its "{%"; to the
  /// end of the template where `ends` is empty.
  Block body(std::initializer_list<std::string_view> ends) {
    Block block;
    Nesting nesting(*this);
    if (!nesting.deeper()) return block;
    while (!failed()) {
      const int line = now().line;
      if (at(TokenKind::end)) {
        if (ends.size() > 0)
          fail("want {% " + std::string(*(ends.end() - 1)) + " %}, have the end");
        break;
      }
      if (at(TokenKind::data)) {
        block.push_back({line, Text{take().text}});
      } else if (at(TokenKind::variable_begin)) {
        take();
        block.push_back({line, Print{tuple_or_expression()}});
        want(TokenKind::variable_end, "'}}'");
      } else {
        want(TokenKind::block_begin, "a tag");
        if (std::any_of(ends.begin(), ends.end(), [this](auto end) { return at_name(end); })) break;
        statement(line, block);
      }
    }
    return block;
  }

  void want(TokenKind kind, std::string_view wanted) {
    if (at(kind))
      take();
    else
      fail_unexpected(wanted);
  }

  void end_tag() { want(TokenKind::block_end, "'%}'"); }

  /// The tag {% name %}, after its "{%".
  void end_block(std::string_view name) {
    if (!take_name(name)) fail_unexpected(name);
    end_tag();
  }

  void statement(int line, Block& out) {
    const std::string name = want_name();
    if (name == "if")
      out.push_back({line, if_statement()});
    else if (name == "for")
      out.push_back({line, for_statement()});
    else if (name == "set")
      out.push_back(set_statement(line));
    else if (name == "macro")
      out.push_back({line, macro_statement()});
    else if (name == "with")
      out.push_back({line, with_statement()});
    else if (name == "filter")
      out.push_back({line, filter_statement()});
    else if (name == "break")
      out.push_back(simple(line, Break{}));
    else if (name == "continue")
      out.push_back(simple(line, Continue{}));
    else if (name == "generation")
      generation(out);
    else if (!failed())
      fail("the statement \"" + name + "\" is not one that chat templates use");
  }

  template <class Node>
  Statement simple(int line, Node node) {
    end_tag();
    return {line, node};
  }

  If if_statement() {
    If node;
    do {
      ExprPtr condition = expression();
      end_tag();
      node.branches.emplace_back(std::move(condition), body({"elif", "else", "endif"}));
    } while (take_name("elif"));
    if (take_name("else")) {
      end_tag();
      node.otherwise = body({"endif"});
    }
    end_block("endif");
    return node;
  }

  Target target() {
    Target target;
    const bool parenthesis = take_op("(");
    do {
      target.names.push_back(want_name());
    } while (take_op(",") && at(TokenKind::name) && !at_name("in"));
    if (parenthesis) want_op(")");
    return target;
  }

  For for_statement() {
    For node;
    node.target = target();
    if (!take_name("in")) fail_unexpected("\"in\"");
    node.items = tuple_or_expression(/*with_conditional=*/false);
    if (take_name("if")) node.condition = expression();
    if (at_name("recursive")) fail("recursive loops are not supported");
    end_tag();
    node.body = body({"else", "endfor"});
    if (take_name("else")) {
      end_tag();
      node.otherwise = body({"endfor"});
    }
    end_block("endfor");
    return node;
  }

  Statement set_statement(int line) {
    Target to = target();
    if (to.names.size() == 1 && take_op(".")) to.attribute = want_name();
    if (take_op("=")) {
      Set node{std::move(to), tuple_or_expression()};
      end_tag();
      return {line, std::move(node)};
    }
    Capture node{std::move(to), {}, {}};
    while (take_op("|")) node.filters.push_back(filter(nullptr));
    end_tag();
    node.body = body({"endset"});
    end_block("endset");
    return {line, std::move(node)};
  }

  Capture filter_statement() {
    Capture node;
    do {
      node.filters.push_back(filter(nullptr));
    } while (take_op("|"));
    end_tag();
    node.body = body({"endfilter"});
    end_block("endfilter");
    return node;
  }

  With with_statement() {
    With node;
    while (!failed() && !at(TokenKind::block_end)) {
      std::string name = want_name();
      want_op("=");
      node.variables.emplace_back(std::move(name), expression());
      if (!take_op(",")) break;
    }
    end_tag();
    node.body = body({"endwith"});
    end_block("endwith");
    return node;
  }

  Macro macro_statement() {
    Macro node;
    node.name = want_name();
    want_op("(");
    while (!failed() && !at_op(")")) {
      std::string name = want_name();
      ExprPtr otherwise = take_op("=") ? expression() : nullptr;
      node.parameters.emplace_back(std::move(name), std::move(otherwise));
      if (!take_op(",")) break;
    }
    want_op(")");
    end_tag();
    node.body = body({"endmacro"});
    end_block("endmacro");
    return node;
  }

  /// {% generation %} marks what a model wrote, for training; the text is the same without it.
  void generation(Block& out) {
    end_tag();
    Block inner = body({"endgeneration"});
    end_block("endgeneration");
    std::move(inner.begin(), inner.end(), std::back_inserter(out));
  }
};

}  // namespace

Result<Block> parse(std::vector<Token> tokens) { return Parser(std::move(tokens)).run(); }

}  // namespace attune::text::jinja
