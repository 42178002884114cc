#include "text/jinja/renderer.hpp"

#include "text/jinja/library.hpp"
#include "text/jinja/operations.hpp"

namespace attune::text::jinja {

using Kind = Value::Kind;

void Scope::set(const std::string& name, Value value) {
  for (Member& variable : variables_) {
    if (variable.first == name) {
      variable.second = std::move(value);
      return;
    }
  }
  variables_.emplace_back(name, std::move(value));
}

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope; scope = scope->outer_) {
    for (const Member& variable : scope->variables_) {
      if (variable.first == name) return &variable.second;
    }
  }
  return nullptr;
}

std::string Renderer::render(const Block& block, Scope& scope) { return captured(block, scope); }

std::string Renderer::captured(const Block& block, Scope& scope) {
  std::string outside = std::exchange(out_, {});
  execute(block, scope);
  return std::exchange(out_, std::move(outside));
}

void Renderer::write(std::string_view text) {
  if (!run_.charge_bytes(text.size())) return;
  out_ += text;
  if (out_.size() > kSizeLimit) run_.fail("the text grows beyond 64 MiB");
}

Renderer::Flow Renderer::execute(const Block& block, Scope& scope) {
  const Run::Level level(run_);
  for (const Statement& statement : block) {
    if (!run_.charge(1)) break;
    run_.at_line(statement.line);
    const Flow flow =
        std::visit([&](const auto& node) { return execute(node, scope); }, statement.node);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Renderer::Flow Renderer::execute(const Text& node, Scope&) {
  write(node.text);
  return Flow::next;
}

Renderer::Flow Renderer::execute(const Print& node, Scope& scope) {
  write(to_text(run_, evaluate(node.value, scope)));
  return Flow::next;
}

Renderer::Flow Renderer::execute(const If& node, Scope& scope) {
  for (const auto& [condition, body] : node.branches) {
    if (evaluate(condition, scope).truthy()) return execute(body, scope);
    if (run_.failed()) return Flow::next;
  }
  return execute(node.otherwise, scope);
}

List Renderer::loop_items(const For& node, const Scope& scope) {
  List items = iterate(run_, evaluate(node.items, scope));
  if (!node.condition) return items;
  List kept;
  for (Value& item : items) {
    if (run_.failed()) break;
    Scope inner(&scope);
    assign(node.target, item, inner);
    if (evaluate(node.condition, inner).truthy()) kept.push_back(std::move(item));
  }
  return kept;
}

namespace {

/// What the name `loop` stands for in round `i` of a loop.
Value loop_variable(const List& items, std::size_t i) {
  const auto number = [](std::size_t n) { return Value(static_cast<std::int64_t>(n)); };
  Dict loop;
  loop.set("index", number(i + 1));
  loop.set("index0", number(i));
  loop.set("revindex", number(items.size() - i));
  loop.set("revindex0", number(items.size() - i - 1));
  loop.set("first", i == 0);
  loop.set("last", i + 1 == items.size());
  loop.set("length", number(items.size()));
  loop.set("previtem", i > 0 ? items[i - 1] : Value::undefined("loop.previtem"));
  loop.set("nextitem", i + 1 < items.size() ? items[i + 1] : Value::undefined("loop.nextitem"));
  loop.set("cycle", Value::function([i](Run& run, const Args& args) {
             if (args.positional.empty()) return run.fail("cycle wants values");
             return args.positional[i % args.positional.size()];
           }));
  return loop;
}

}  // namespace

Renderer::Flow Renderer::execute(const For& node, Scope& scope) {
  const List items = loop_items(node, scope);
  if (items.empty() && !run_.failed()) {
    Scope inner(&scope);
    return execute(node.otherwise, inner);
  }
  constexpr std::size_t kRoundSteps = 64;
  for (std::size_t i = 0; i < items.size() && run_.charge(kRoundSteps); ++i) {
    Scope inner(&scope);
    inner.set("loop", loop_variable(items, i));
    assign(node.target, items[i], inner);
    if (execute(node.body, inner) == Flow::break_loop) break;
  }
  return Flow::next;
}

void Renderer::assign(const Target& target, Value value, Scope& scope) {
  if (!target.attribute.empty()) {
    const Value* space = scope.find(target.names.front());
    if (!space || !space->is(Kind::space)) {
      run_.fail("'" + target.names.front() + "' is not a namespace; only its members can be set");
    } else if (!value.plain()) {
      run_.fail("a namespace holds data only");
    } else {
      space->space().members.set(target.attribute, std::move(value));
    }
    return;
  }
  if (target.names.size() == 1) return scope.set(target.names.front(), std::move(value));
  const List parts = iterate(run_, value);
  if (parts.size() != target.names.size()) {
    run_.fail("want " + std::to_string(target.names.size()) + " values to take apart, have " +
              std::to_string(parts.size()));
    return;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) scope.set(target.names[i], parts[i]);
}

Renderer::Flow Renderer::execute(const Set& node, Scope& scope) {
  Value value = evaluate(node.value, scope);
  if (!run_.failed()) assign(node.target, std::move(value), scope);
  return Flow::next;
}

Renderer::Flow Renderer::execute(const Capture& node, Scope& scope) {
  Scope inner(&scope);
  Value value = run_.checked(captured(node.body, inner));
  for (const Filter& filter : node.filters) {
    value = find_filter(filter.name)(run_, value, evaluate(filter.arguments, scope));
  }
  if (run_.failed()) return Flow::next;
  if (node.target)
    assign(*node.target, std::move(value), scope);
  else
    write(to_text(run_, value));
  return Flow::next;
}

Renderer::Flow Renderer::execute(const With& node, Scope& scope) {
  Scope inner(&scope);
  for (const auto& [name, value] : node.variables) inner.set(name, evaluate(value, scope));
  return execute(node.body, inner);
}

Renderer::Flow Renderer::execute(const Macro& node, Scope& scope) {
  // The scope outlives the macro: a macro cannot be stored outside the scope that defines it.
  scope.set(node.name, Value::function([this, &node, &scope](Run&, const Args& args) {
              return call_macro(node, scope, args);
            }));
  return Flow::next;
}

Value Renderer::call_macro(const Macro& macro, const Scope& defined_in, const Args& args) {
  if (args.positional.size() > macro.parameters.size()) {
    return run_.fail("the macro " + macro.name + " takes at most " +
                     std::to_string(macro.parameters.size()) + " arguments");
  }
  for (const Member& given : args.named) {
    bool known = false;
    for (const auto& parameter : macro.parameters) known = known || parameter.first == given.first;
    if (!known) return run_.fail("the macro " + macro.name + " has no parameter " + given.first);
  }
  const int line = run_.line();
  Scope inner(&defined_in);
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, otherwise] = macro.parameters[i];
    const Value* given = i < args.positional.size() ? &args.positional[i] : nullptr;
    for (const Member& member : args.named) {
      if (member.first == name) given = &member.second;
    }
    if (given)
      inner.set(name, *given);
    else
      inner.set(name, otherwise ? evaluate(otherwise, inner) : Value::undefined(name));
  }
  Value text = run_.checked(captured(macro.body, inner));
  if (!run_.failed()) run_.at_line(line);
  return text;
}

Value Renderer::evaluate(const ExprPtr& expr, const Scope& scope) {
  const Run::Level level(run_);
  if (!run_.charge(1)) return {};
  run_.at_line(expr->line);
  return std::visit([&](const auto& node) { return evaluate(node, scope); }, expr->node);
}

Value Renderer::evaluate(const Name& node, const Scope& scope) {
  const Value* value = scope.find(node.name);
  return value ? *value : Value::undefined(node.name);
}

Value Renderer::evaluate(const ListDisplay& node, const Scope& scope) {
  List items;
  for (const ExprPtr& item : node.items) items.push_back(evaluate(item, scope));
  return node.tuple ? run_.checked_tuple(std::move(items)) : run_.checked(std::move(items));
}

Value Renderer::evaluate(const DictDisplay& node, const Scope& scope) {
  Dict dict;
  for (const auto& [key_expr, value_expr] : node.members) {
    const Value key = evaluate(key_expr, scope);
    if (!key.is(Kind::string)) return run_.fail("a mapping wants strings for keys");
    dict.set(key.string(), evaluate(value_expr, scope));
  }
  return run_.checked(std::move(dict));
}

Value Renderer::evaluate(const Unary& node, const Scope& scope) {
  const Value operand = evaluate(node.operand, scope);
  if (node.op == UnaryOp::logical_not) return !operand.truthy();
  if (node.op == UnaryOp::minus) return subtract(run_, std::int64_t{0}, operand);
  return add(run_, std::int64_t{0}, operand);
}

Value Renderer::evaluate(const Binary& node, const Scope& scope) {
  const Value left = evaluate(node.left, scope);
  if (node.op == BinaryOp::logical_and) return left.truthy() ? evaluate(node.right, scope) : left;
  if (node.op == BinaryOp::logical_or) return left.truthy() ? left : evaluate(node.right, scope);
  const Value right = evaluate(node.right, scope);
  if (run_.failed()) return {};
  switch (node.op) {
    case BinaryOp::add: return add(run_, left, right);
    case BinaryOp::sub: return subtract(run_, left, right);
    case BinaryOp::mul: return multiply(run_, left, right);
    case BinaryOp::div: return divide(run_, left, right);
    case BinaryOp::floor_div: return floor_divide(run_, left, right);
    case BinaryOp::mod: return modulo(run_, left, right);
    case BinaryOp::pow: return power(run_, left, right);
    default: return run_.checked(to_text(run_, left) + to_text(run_, right));
  }
}

bool Renderer::holds(CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::eq: return equal(run_, left, right);
    case CompareOp::ne: return !equal(run_, left, right);
    case CompareOp::lt: return compare(run_, left, right) < 0;
    case CompareOp::le: return compare(run_, left, right) <= 0;
    case CompareOp::gt: return compare(run_, left, right) > 0;
    case CompareOp::ge: return compare(run_, left, right) >= 0;
    case CompareOp::in: return contains(run_, right, left);
    case CompareOp::not_in: return !contains(run_, right, left);
  }
  return false;
}

Value Renderer::evaluate(const Compare& node, const Scope& scope) {
  Value left = evaluate(node.first, scope);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(operand, scope);
    if (run_.failed() || !holds(op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Renderer::evaluate(const Attribute& node, const Scope& scope) {
  return attribute(run_, evaluate(node.object, scope), node.name);
}

Value Renderer::evaluate(const Subscript& node, const Scope& scope) {
  const Value object = evaluate(node.object, scope);
  return subscript(run_, object, evaluate(node.index, scope));
}

Value Renderer::evaluate(const Slice& node, const Scope& scope) {
  const auto bound = [&](const ExprPtr& expr) {
    return expr ? evaluate(expr, scope) : Value::none();
  };
  const Value object = evaluate(node.object, scope);
  const Value start = bound(node.start);
  const Value stop = bound(node.stop);
  return slice(run_, object, start, stop, bound(node.step));
}

Args Renderer::evaluate(const Arguments& arguments, const Scope& scope) {
  Args args;
  for (const ExprPtr& value : arguments.positional) {
    args.positional.push_back(evaluate(value, scope));
  }
  for (const auto& [name, value] : arguments.named) {
    args.named.emplace_back(name, evaluate(value, scope));
  }
  return args;
}

Value Renderer::evaluate(const Call& node, const Scope& scope) {
  const Value callee = evaluate(node.callee, scope);
  const Args args = evaluate(node.arguments, scope);
  return run_.failed() ? Value() : call(run_, callee, args);
}

Value Renderer::evaluate(const Filter& node, const Scope& scope) {
  const Value value = evaluate(node.value, scope);
  const Args args = evaluate(node.arguments, scope);
  return run_.failed() ? Value() : find_filter(node.name)(run_, value, args);
}

Value Renderer::evaluate(const Test& node, const Scope& scope) {
  const Value value = evaluate(node.value, scope);
  const Args args = evaluate(node.arguments, scope);
  if (run_.failed()) return {};
  return find_test(node.name)(run_, value, args) != node.negated;
}

Value Renderer::evaluate(const Conditional& node, const Scope& scope) {
  if (evaluate(node.condition, scope).truthy()) return evaluate(node.then, scope);
  return node.otherwise ? evaluate(node.otherwise, scope) : Value::undefined("the else of an if");
}

}  // namespace attune::text::jinja
