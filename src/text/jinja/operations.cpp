#include "text/jinja/operations.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/library.hpp"
#include "text/jinja/strings.hpp"
#include "text/utf8.hpp"

namespace attune::text::jinja {
namespace {

using Kind = Value::Kind;

std::string describe(const Value& value) {
  return value.is(Kind::undefined) ? "'" + value.undefined_name() + "', which is undefined"
                                   : std::string(name(value.kind()));
}

Value no_operation(Run& run, std::string_view op, const Value& a, const Value& b) {
  return run.fail("cannot do " + std::string(op) + " with " + describe(a) + " and " + describe(b));
}

/// Integer arithmetic that would leave 64 bits fails; all else is double.
template <class Whole, class Real>
Value arithmetic(Run& run, std::string_view op, const Value& a, const Value& b, Whole whole,
                 Real real) {
  if (!a.is_number() || !b.is_number()) return no_operation(run, op, a, b);
  if (!a.is_integral() || !b.is_integral()) return real(a.number(), b.number());
  std::int64_t result = 0;
  if (whole(a.integer(), b.integer(), result)) return result;
  return run.fail("integer overflow in " + std::string(op));
}

bool add_whole(std::int64_t a, std::int64_t b, std::int64_t& out) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  if (b > 0 ? a > kMax - b : a < kMin - b) return false;
  out = a + b;
  return true;
}

bool multiply_whole(std::int64_t a, std::int64_t b, std::int64_t& out) {
  constexpr std::int64_t kSafe = std::int64_t{1} << 31;
  const bool small = a > -kSafe && a < kSafe && b > -kSafe && b < kSafe;
  const double estimate = static_cast<double>(a) * static_cast<double>(b);
  if (!small && !(std::abs(estimate) < 9.2e18)) return false;
  out = a * b;
  return true;
}

Value repeat(Run& run, const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  const std::size_t size = value.is(Kind::string) ? value.string().size() : value.list().size();
  if (size > 0 && count > kSizeLimit / size) return run.fail("a repetition grows too large");
  const bool is_string = value.is(Kind::string);
  if (!run.charge(1 + (is_string ? size * count / 16 : size * count * kStepsPerItem))) return {};
  if (is_string) {
    std::string out;
    out.reserve(size * count);
    for (std::size_t i = 0; i < count; ++i) out += value.string();
    return out;
  }
  List out;
  for (std::size_t i = 0; i < count; ++i) {
    out.insert(out.end(), value.list().begin(), value.list().end());
  }
  return out;
}

}  // namespace

bool equal(Run& run, const Value& a, const Value& b) {
  if (!run.charge(1)) return false;
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.integer() == b.integer()
                                              : a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  if (a.same(b)) return true;
  switch (a.kind()) {
    case Kind::string: return run.charge_bytes(a.string().size()) && a.string() == b.string();
    case Kind::list:
      return a.list().size() == b.list().size() && a.is_tuple() == b.is_tuple() &&
             std::equal(a.list().begin(), a.list().end(), b.list().begin(),
                        [&](const Value& x, const Value& y) { return equal(run, x, y); });
    case Kind::dict: {
      const auto& members = a.dict().members();
      return a.dict().size() == b.dict().size() &&
             std::all_of(members.begin(), members.end(), [&](const Member& member) {
               const Value* other = b.dict().find(member.first);
               return other && equal(run, member.second, *other);
             });
    }
    default: return false;
  }
}

int compare(Run& run, const Value& a, const Value& b) {
  if (!run.charge(1)) return 0;
  const auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.is_integral() && b.is_integral()) return sign(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return sign(a.number(), b.number());
  if (a.is(Kind::string) && b.is(Kind::string)) {
    if (!run.charge_bytes(std::min(a.string().size(), b.string().size()))) return 0;
    return sign(a.string().compare(b.string()), 0);
  }
  if (a.is(Kind::list) && b.is(Kind::list)) {
    const std::size_t common = std::min(a.list().size(), b.list().size());
    for (std::size_t i = 0; i < common && !run.failed(); ++i) {
      if (!equal(run, a.list()[i], b.list()[i])) return compare(run, a.list()[i], b.list()[i]);
    }
    return sign(a.list().size(), b.list().size());
  }
  no_operation(run, "a comparison", a, b);
  return 0;
}

bool contains(Run& run, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::undefined: return false;
    case Kind::string:
      if (!item.is(Kind::string)) break;
      return run.charge_search(container.string().size(), item.string().size()) &&
             container.string().find(item.string()) != std::string::npos;
    case Kind::list:
      return std::any_of(container.list().begin(), container.list().end(),
                         [&](const Value& each) { return equal(run, each, item); });
    case Kind::dict: return item.is(Kind::string) && container.dict().find(item.string());
    default: break;
  }
  run.fail("\"in\" cannot look for " + describe(item) + " in " + describe(container));
  return false;
}

Value add(Run& run, const Value& a, const Value& b) {
  if (a.is(Kind::string) && b.is(Kind::string)) return run.checked(a.string() + b.string());
  if (a.is(Kind::list) && b.is(Kind::list) && a.is_tuple() == b.is_tuple()) {
    List both = a.list();
    both.insert(both.end(), b.list().begin(), b.list().end());
    return a.is_tuple() ? run.checked_tuple(std::move(both)) : run.checked(std::move(both));
  }
  return arithmetic(run, "+", a, b, add_whole, [](double x, double y) { return x + y; });
}

Value subtract(Run& run, const Value& a, const Value& b) {
  const auto whole = [](std::int64_t x, std::int64_t y, std::int64_t& out) {
    return y != std::numeric_limits<std::int64_t>::min() && add_whole(x, -y, out);
  };
  return arithmetic(run, "-", a, b, whole, [](double x, double y) { return x - y; });
}

Value multiply(Run& run, const Value& a, const Value& b) {
  const auto repeatable = [](const Value& v) { return v.is(Kind::string) || v.is(Kind::list); };
  if (repeatable(a) && b.is_integral()) return repeat(run, a, b.integer());
  if (a.is_integral() && repeatable(b)) return repeat(run, b, a.integer());
  return arithmetic(run, "*", a, b, multiply_whole, [](double x, double y) { return x * y; });
}

Value divide(Run& run, const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) return no_operation(run, "/", a, b);
  return b.number() == 0 ? run.fail("division by zero") : Value(a.number() / b.number());
}

Value floor_divide(Run& run, const Value& a, const Value& b) {
  if (b.is_number() && b.number() == 0) return run.fail("division by zero");
  const auto whole = [](std::int64_t x, std::int64_t y, std::int64_t& out) {
    if (x == std::numeric_limits<std::int64_t>::min() && y == -1) return false;
    out = x / y - ((x % y != 0 && (x < 0) != (y < 0)) ? 1 : 0);
    return true;
  };
  return arithmetic(run, "//", a, b, whole, [](double x, double y) { return std::floor(x / y); });
}

Value modulo(Run& run, const Value& a, const Value& b) {
  if (b.is_number() && b.number() == 0) return run.fail("division by zero");
  const auto whole = [](std::int64_t x, std::int64_t y, std::int64_t& out) {
    out = y == -1 ? 0 : x % y;
    if (out != 0 && (out < 0) != (y < 0)) out += y;
    return true;
  };
  const auto real = [](double x, double y) { return x - y * std::floor(x / y); };
  return arithmetic(run, "%", a, b, whole, real);
}

Value power(Run& run, const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) return no_operation(run, "**", a, b);
  if (!a.is_integral() || !b.is_integral() || b.integer() < 0) {
    return std::pow(a.number(), b.number());
  }
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(b.integer(), 64); ++i) {
    if (!multiply_whole(result, a.integer(), result)) return run.fail("integer overflow in **");
  }
  const bool settled = b.integer() <= 64 || std::abs(a.integer()) <= 1;
  if (!settled) return run.fail("integer overflow in **");
  return b.integer() > 64 && a.integer() == -1 && b.integer() % 2 != 0 ? std::int64_t{-1} : result;
}

List iterate(Run& run, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return {};
    case Kind::list: return run.charge(1 + value.list().size()) ? value.list() : List{};
    case Kind::dict: {
      List keys;
      if (!run.charge(1 + kStepsPerItem * value.dict().size())) return {};
      for (const auto& member : value.dict().members()) keys.emplace_back(member.first);
      return keys;
    }
    case Kind::string: {
      List chars;
      if (!run.charge(1 + kStepsPerItem * value.string().size())) return {};
      for (std::string_view rest = value.string(); !rest.empty();) {
        const std::size_t length = read_utf8(rest).length;
        chars.emplace_back(std::string(rest.substr(0, length)));
        rest.remove_prefix(length);
      }
      return chars;
    }
    default: run.fail("cannot loop over " + describe(value)); return {};
  }
}

Value attribute(Run& run, const Value& object, const std::string& name) {
  if (object.is(Kind::undefined)) {
    return run.fail("'" + object.undefined_name() + "' is undefined, so it has no ." + name);
  }
  if (object.is(Kind::space)) {
    const Value* member = object.space().members.find(name);
    return member ? *member : Value::undefined(name);
  }
  if (const auto method = find_method(object, name)) return *method;
  if (object.is(Kind::dict)) {
    if (const Value* member = object.dict().find(name)) return *member;
  }
  return Value::undefined(name);
}

Value subscript(Run& run, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::undefined:
      return run.fail("'" + object.undefined_name() + "' is undefined, so it has no element");
    case Kind::dict:
      if (!key.is(Kind::string)) return Value::undefined(to_text(run, key));
      if (const Value* member = object.dict().find(key.string())) return *member;
      return Value::undefined(key.string());
    case Kind::list:
    case Kind::string: {
      if (!key.is_integral()) break;
      const bool is_list = object.is(Kind::list);
      if (!is_list && !run.charge_bytes(object.string().size())) return {};
      const std::int64_t size =
          is_list ? static_cast<std::int64_t>(object.list().size()) : count_chars(object.string());
      const std::int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
      if (index < 0 || index >= size) return Value::undefined(std::to_string(key.integer()));
      if (is_list) return object.list()[static_cast<std::size_t>(index)];
      return std::string(chars_between(object.string(), index, index + 1));
    }
    default: break;
  }
  if (key.is(Kind::string)) return attribute(run, object, key.string());
  return Value::undefined(to_text(run, key));
}

Value slice(Run& run, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  if (!object.is(Kind::list) && !object.is(Kind::string)) {
    return run.fail("cannot slice " + describe(object));
  }
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is(Kind::none) && !bound->is_integral()) {
      return run.fail("a slice wants integers, have " + describe(*bound));
    }
  }
  const std::int64_t stride = step.is(Kind::none) ? 1 : step.integer();
  if (stride == 0) return run.fail("a slice cannot have the step 0");
  const bool is_list = object.is(Kind::list);
  if (!is_list && !run.charge_bytes(object.string().size())) return {};
  const std::int64_t size =
      is_list ? static_cast<std::int64_t>(object.list().size()) : count_chars(object.string());
  // Python's rule: bounds count from the end when negative, and are cut to the sequence.
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (value.is(Kind::none)) return otherwise;
    const std::int64_t i = value.integer() < 0 ? value.integer() + size : value.integer();
    return stride > 0 ? std::clamp<std::int64_t>(i, 0, size)
                      : std::clamp<std::int64_t>(i, -1, size - 1);
  };
  const std::int64_t first = bound(start, stride > 0 ? 0 : size - 1);
  const std::int64_t last = bound(stop, stride > 0 ? size : -1);
  if (!is_list && stride == 1) {
    return run.checked(std::string(chars_between(object.string(), first, std::max(first, last))));
  }
  const List items = iterate(run, object);
  List part;
  for (std::int64_t i = first; !run.failed() && (stride > 0 ? i < last : i > last);) {
    part.push_back(items[static_cast<std::size_t>(i)]);
    if (!add_whole(i, stride, i)) break;
  }
  if (object.is_tuple()) return run.checked_tuple(std::move(part));
  if (is_list) return run.checked(std::move(part));
  std::string text;
  for (const Value& c : part) text += c.string();
  return run.checked(std::move(text));
}

Value call(Run& run, const Value& callee, const Args& args) {
  if (callee.is(Kind::function)) {
    const Run::Level level(run);
    return run.failed() ? Value() : callee.function()(run, args);
  }
  return run.fail("cannot call " + describe(callee));
}

}  // namespace attune::text::jinja
