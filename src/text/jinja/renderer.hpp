// Walks the syntax tree and writes the text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.hpp"
#include "text/jinja/run.hpp"

namespace attune::text::jinja {

/// Variables of one block. A lookup goes outwards, an assignment stays here.
class Scope {
 public:
  explicit Scope(const Scope* outer) : outer_(outer) {}
  void set(const std::string& name, Value value);
  [[nodiscard]] const Value* find(const std::string& name) const;

 private:
  const Scope* outer_;
  std::vector<Member> variables_;
};

class Renderer {
 public:
  explicit Renderer(Run& run) : run_(run) {}

  /// The text of a template; failures are in the run.
  std::string render(const Block& block, Scope& scope);

  Value evaluate(const ExprPtr& expr, const Scope& scope);

 private:
  enum class Flow { next, break_loop, continue_loop };

  Flow execute(const Block& block, Scope& scope);
  /// The text that a block writes, instead of writing it.
  std::string captured(const Block& block, Scope& scope);
  void write(std::string_view text);

  Flow execute(const Text& node, Scope& scope);
  Flow execute(const Print& node, Scope& scope);
  Flow execute(const If& node, Scope& scope);
  Flow execute(const For& node, Scope& scope);
  Flow execute(const Set& node, Scope& scope);
  Flow execute(const Capture& node, Scope& scope);
  Flow execute(const With& node, Scope& scope);
  Flow execute(const Macro& node, Scope& scope);
  Flow execute(const Break&, Scope&) { return Flow::break_loop; }
  Flow execute(const Continue&, Scope&) { return Flow::continue_loop; }

  void assign(const Target& target, Value value, Scope& scope);
  List loop_items(const For& node, const Scope& scope);
  Value call_macro(const Macro& macro, const Scope& defined_in, const Args& args);

  Value evaluate(const Literal& node, const Scope&) { return node.value; }
  Value evaluate(const Name& node, const Scope& scope);
  Value evaluate(const ListDisplay& node, const Scope& scope);
  Value evaluate(const DictDisplay& node, const Scope& scope);
  Value evaluate(const Unary& node, const Scope& scope);
  Value evaluate(const Binary& node, const Scope& scope);
  Value evaluate(const Compare& node, const Scope& scope);
  Value evaluate(const Attribute& node, const Scope& scope);
  Value evaluate(const Subscript& node, const Scope& scope);
  Value evaluate(const Slice& node, const Scope& scope);
  Value evaluate(const Call& node, const Scope& scope);
  Value evaluate(const Filter& node, const Scope& scope);
  Value evaluate(const Test& node, const Scope& scope);
  Value evaluate(const Conditional& node, const Scope& scope);
  Args evaluate(const Arguments& arguments, const Scope& scope);
  bool holds(CompareOp op, const Value& left, const Value& right);

  Run& run_;
  std::string out_;
};

}  // namespace attune::text::jinja
