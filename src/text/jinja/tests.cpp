// The tests: value is name(arguments).
#include <algorithm>
#include <array>

#include "text/jinja/library.hpp"
#include "text/jinja/operations.hpp"
#include "text/unicode.hpp"

namespace attune::text::jinja {
namespace {

using Kind = Value::Kind;

template <Kind Wanted>
bool is_kind(Run&, const Value& value, const Args&) {
  return value.is(Wanted);
}

bool is_defined(Run&, const Value& value, const Args&) { return !value.is(Kind::undefined); }
bool is_true(Run&, const Value& value, const Args&) {
  return value.is(Kind::boolean) && value.boolean();
}
bool is_false(Run&, const Value& value, const Args&) {
  return value.is(Kind::boolean) && !value.boolean();
}
bool is_number(Run&, const Value& value, const Args&) { return value.is_number(); }
bool is_iterable(Run&, const Value& value, const Args&) {
  return value.is(Kind::list) || value.is(Kind::dict) || value.is(Kind::string) ||
         value.is(Kind::undefined);
}
bool is_callable(Run&, const Value& value, const Args&) { return value.is(Kind::function); }

/// The one argument of a test.
const Value& operand(Run& run, const Args& args) {
  static const Value kMissing;
  if (!args.positional.empty()) return args.positional.front();
  run.fail("the test wants an argument");
  return kMissing;
}

bool divides(Run& run, const Value& value, const Value& by) {
  if (!value.is_integral() || !by.is_integral() || by.integer() == 0) {
    run.fail("the test wants integers, and none to divide by zero");
    return false;
  }
  return by.integer() == -1 || value.integer() % by.integer() == 0;
}

bool is_even(Run& run, const Value& value, const Args&) {
  return divides(run, value, std::int64_t{2});
}
bool is_odd(Run& run, const Value& value, const Args&) {
  return !divides(run, value, std::int64_t{2});
}
bool is_divisible(Run& run, const Value& value, const Args& args) {
  return divides(run, value, operand(run, args));
}

bool is_equal(Run& run, const Value& value, const Args& args) {
  return equal(run, value, operand(run, args));
}
bool is_unequal(Run& run, const Value& value, const Args& args) {
  return !equal(run, value, operand(run, args));
}
bool is_less(Run& run, const Value& value, const Args& args) {
  return compare(run, value, operand(run, args)) < 0;
}
bool is_at_most(Run& run, const Value& value, const Args& args) {
  return compare(run, value, operand(run, args)) <= 0;
}
bool is_greater(Run& run, const Value& value, const Args& args) {
  return compare(run, value, operand(run, args)) > 0;
}
bool is_at_least(Run& run, const Value& value, const Args& args) {
  return compare(run, value, operand(run, args)) >= 0;
}
bool is_in(Run& run, const Value& value, const Args& args) {
  return contains(run, operand(run, args), value);
}
bool is_same(Run& run, const Value& value, const Args& args) {
  return value.same(operand(run, args));
}
bool is_lower(Run& run, const Value& value, const Args&) {
  const std::string text = to_text(run, value);
  return to_lower(text) == text && to_upper(text) != text;
}
bool is_upper(Run& run, const Value& value, const Args&) {
  const std::string text = to_text(run, value);
  return to_upper(text) == text && to_lower(text) != text;
}

struct Row {
  std::string_view name;
  TestFunction function;
};

constexpr std::array kTests = {
    Row{"!=", is_unequal},
    Row{"<", is_less},
    Row{"<=", is_at_most},
    Row{"==", is_equal},
    Row{">", is_greater},
    Row{">=", is_at_least},
    Row{"boolean", is_kind<Kind::boolean>},
    Row{"callable", is_callable},
    Row{"defined", is_defined},
    Row{"divisibleby", is_divisible},
    Row{"eq", is_equal},
    Row{"equalto", is_equal},
    Row{"even", is_even},
    Row{"false", is_false},
    Row{"float", is_kind<Kind::real>},
    Row{"ge", is_at_least},
    Row{"greaterthan", is_greater},
    Row{"gt", is_greater},
    Row{"in", is_in},
    Row{"integer", is_kind<Kind::integer>},
    Row{"iterable", is_iterable},
    Row{"le", is_at_most},
    Row{"lessthan", is_less},
    Row{"lower", is_lower},
    Row{"lt", is_less},
    Row{"mapping", is_kind<Kind::dict>},
    Row{"ne", is_unequal},
    Row{"none", is_kind<Kind::none>},
    Row{"number", is_number},
    Row{"odd", is_odd},
    Row{"sameas", is_same},
    Row{"sequence", is_iterable},
    Row{"string", is_kind<Kind::string>},
    Row{"true", is_true},
    Row{"undefined", is_kind<Kind::undefined>},
    Row{"upper", is_upper},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto* row = std::find_if(kTests.begin(), kTests.end(),
                                 [&](const Row& each) { return each.name == name; });
  return row == kTests.end() ? nullptr : row->function;
}

}  // namespace attune::text::jinja
