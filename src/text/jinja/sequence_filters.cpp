// The filters of sequences: they look at items, or at an attribute of each item.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/library.hpp"
#include "text/jinja/operations.hpp"
#include "text/jinja/strings.hpp"
#include "text/unicode.hpp"

namespace attune::text::jinja {
namespace {

using Kind = Value::Kind;

/// The attribute path "a.b.0" of a value.
Value path(Run& run, Value value, const Value& attribute_name) {
  if (attribute_name.is_integral()) return subscript(run, value, attribute_name);
  const std::string names = to_text(run, attribute_name);
  for (std::size_t begin = 0; begin <= names.size() && !run.failed();) {
    const std::size_t end = std::min(names.find('.', begin), names.size());
    const std::string part = names.substr(begin, end - begin);
    std::int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = parsed.ec == std::errc{} && parsed.ptr == part.data() + part.size();
    value = subscript(run, value, is_index ? Value(index) : Value(part));
    begin = end + 1;
  }
  return value;
}

Value join(Run& run, const Value& value, const Args& args) {
  const std::string between = string_argument(run, args, 0, "d");
  const Value* by = argument(args, 1, "attribute");
  std::string out;
  bool first = true;
  for (const Value& item : iterate(run, value)) {
    if (!run.charge_bytes(between.size())) return {};
    if (!std::exchange(first, false)) out += between;
    out += to_text(run, by ? path(run, item, *by) : item);
    if (out.size() > kSizeLimit) return run.fail("a joined string grows too large");
  }
  return run.checked(std::move(out));
}

Value first(Run& run, const Value& value, const Args&) {
  const List items = iterate(run, value);
  return items.empty() ? Value::undefined("first") : items.front();
}

Value last(Run& run, const Value& value, const Args&) {
  const List items = iterate(run, value);
  return items.empty() ? Value::undefined("last") : items.back();
}

Args arguments_after(const Args& args, std::size_t count) {
  Args rest{.positional = {}, .named = args.named};
  for (std::size_t i = count; i < args.positional.size(); ++i) {
    rest.positional.push_back(args.positional[i]);
  }
  return rest;
}

Value map(Run& run, const Value& value, const Args& args) {
  List out;
  if (const Value* by = argument(args, args.positional.size(), "attribute")) {
    const Value* otherwise = argument(args, args.positional.size(), "default");
    for (const Value& item : iterate(run, value)) {
      Value found = path(run, item, *by);
      out.push_back(found.is(Kind::undefined) && otherwise ? *otherwise : found);
    }
    return run.checked(std::move(out));
  }
  const std::string filter_name = string_argument(run, args, 0, "filter");
  const FilterFunction filter = find_filter(filter_name);
  if (!filter) return run.fail("no filter is called \"" + filter_name + "\"");
  const Args rest = arguments_after(args, 1);
  const Run::Level level(run);
  for (const Value& item : iterate(run, value)) {
    if (!run.charge(1)) return {};
    out.push_back(filter(run, item, rest));
  }
  return run.checked(std::move(out));
}

/// select and its kin: keeps the items whose value (itself or an attribute) passes the test.
Value choose(Run& run, const Value& value, const Args& args, bool by_attribute, bool wanted) {
  const std::size_t at = by_attribute ? 1 : 0;
  const Value* attribute_name = argument(args, 0, "attribute");
  if (by_attribute && !attribute_name) return run.fail("selectattr and rejectattr want a name");
  TestFunction test = nullptr;
  if (args.positional.size() > at) {
    const std::string test_name = string_argument(run, args, at, "test");
    test = find_test(test_name);
    if (!test) return run.fail("no test is called \"" + test_name + "\"");
  }
  const Args rest = arguments_after(args, at + 1);
  List out;
  for (const Value& item : iterate(run, value)) {
    if (!run.charge(1)) return {};
    const Value subject = by_attribute ? path(run, item, *attribute_name) : item;
    const bool passes = test ? test(run, subject, rest) : subject.truthy();
    if (passes == wanted) out.push_back(item);
  }
  return run.checked(std::move(out));
}

Value select(Run& run, const Value& v, const Args& a) { return choose(run, v, a, false, true); }
Value reject(Run& run, const Value& v, const Args& a) { return choose(run, v, a, false, false); }
Value selectattr(Run& run, const Value& v, const Args& a) { return choose(run, v, a, true, true); }
Value rejectattr(Run& run, const Value& v, const Args& a) { return choose(run, v, a, true, false); }

Value list(Run& run, const Value& value, const Args&) { return run.checked(iterate(run, value)); }

Value items(Run& run, const Value& value, const Args&) {
  if (value.is(Kind::undefined)) return List{};
  if (!value.is(Kind::dict)) return run.fail("items wants a mapping");
  List out;
  for (const auto& [key, item] : value.dict().members()) out.push_back(Value::tuple({key, item}));
  return run.checked(std::move(out));
}

/// Sorted by keys that are all numbers or all strings; equal ones keep their order.
Value sorted(Run& run, List values, const List& keys, bool reverse) {
  const bool numbers = std::all_of(keys.begin(), keys.end(), [](auto& k) { return k.is_number(); });
  const bool strings =
      std::all_of(keys.begin(), keys.end(), [](auto& k) { return k.is(Kind::string); });
  if (!numbers && !strings) return run.fail("sort wants numbers only or strings only");
  std::size_t longest = 0;
  for (const Value& key : keys) {
    if (strings) longest = std::max(longest, key.string().size());
  }
  constexpr std::size_t kComparisonsEach = 24;  // log2 of the longest list
  if (!run.charge(kComparisonsEach * values.size() * (1 + longest / 16))) return {};
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto rank = [](double number) { return std::isnan(number) ? -INFINITY : number; };
  const auto less = [&](std::size_t a, std::size_t b) {
    return strings ? keys[a].string() < keys[b].string()
                   : rank(keys[a].number()) < rank(keys[b].number());
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return reverse ? less(b, a) : less(a, b); });
  List out;
  for (const std::size_t i : order) out.push_back(std::move(values[i]));
  return run.checked(std::move(out));
}

Value folded(const Value& value, bool case_sensitive) {
  return value.is(Kind::string) && !case_sensitive ? Value(to_lower(value.string())) : value;
}

Value sort(Run& run, const Value& value, const Args& args) {
  const bool reverse = flag_argument(args, 0, "reverse", false);
  const bool case_sensitive = flag_argument(args, 1, "case_sensitive", false);
  const Value* by = argument(args, 2, "attribute");
  List values = iterate(run, value);
  List keys;
  for (const Value& item : values) {
    keys.push_back(folded(by ? path(run, item, *by) : item, case_sensitive));
  }
  return run.failed() ? Value() : sorted(run, std::move(values), keys, reverse);
}

Value dictsort(Run& run, const Value& value, const Args& args) {
  if (!value.is(Kind::dict)) return run.fail("dictsort wants a mapping");
  const bool case_sensitive = flag_argument(args, 0, "case_sensitive", false);
  const bool by_value = string_argument(run, args, 1, "by", "key") == "value";
  List pairs, keys;
  for (const auto& [key, item] : value.dict().members()) {
    pairs.push_back(Value::tuple({key, item}));
    keys.push_back(folded(by_value ? item : Value(key), case_sensitive));
  }
  return sorted(run, std::move(pairs), keys, flag_argument(args, 2, "reverse", false));
}

Value unique(Run& run, const Value& value, const Args& args) {
  const bool case_sensitive = flag_argument(args, 0, "case_sensitive", false);
  const Value* by = argument(args, 1, "attribute");
  List out, seen;
  for (const Value& item : iterate(run, value)) {
    Value key = folded(by ? path(run, item, *by) : item, case_sensitive);
    if (run.failed()) return {};
    if (std::any_of(seen.begin(), seen.end(), [&](auto& s) { return equal(run, s, key); }))
      continue;
    seen.push_back(std::move(key));
    out.push_back(item);
  }
  return run.checked(std::move(out));
}

Value reverse(Run& run, const Value& value, const Args&) {
  List out = iterate(run, value);
  std::reverse(out.begin(), out.end());
  if (!value.is(Kind::string)) return run.checked(std::move(out));
  std::string text;
  for (const Value& c : out) text += c.string();
  return text;
}

Value sum(Run& run, const Value& value, const Args& args) {
  const Value* by = argument(args, 0, "attribute");
  const Value* start = argument(args, 1, "start");
  Value total = start ? *start : Value(std::int64_t{0});
  for (const Value& item : iterate(run, value)) {
    if (run.failed()) return {};
    total = add(run, total, by && !by->is(Kind::none) ? path(run, item, *by) : item);
  }
  return total;
}

/// The smallest (sign -1) or largest (sign 1) item.
Value extreme(Run& run, const Value& value, int sign) {
  const List values = iterate(run, value);
  if (values.empty()) return Value::undefined("item of an empty list");
  const Value* best = &values.front();
  for (const Value& item : values) {
    if (compare(run, item, *best) * sign > 0) best = &item;
  }
  return *best;
}
Value min(Run& run, const Value& value, const Args&) { return extreme(run, value, -1); }
Value max(Run& run, const Value& value, const Args&) { return extreme(run, value, 1); }

struct Row {
  std::string_view name;
  FilterFunction function;
};

constexpr std::array kFilters = {
    Row{"dictsort", dictsort},
    Row{"first", first},
    Row{"items", items},
    Row{"join", join},
    Row{"last", last},
    Row{"list", list},
    Row{"map", map},
    Row{"max", max},
    Row{"min", min},
    Row{"reject", reject},
    Row{"rejectattr", rejectattr},
    Row{"reverse", reverse},
    Row{"select", select},
    Row{"selectattr", selectattr},
    Row{"sort", sort},
    Row{"sum", sum},
    Row{"unique", unique},
};

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  const auto* row = std::find_if(kFilters.begin(), kFilters.end(),
                                 [&](const Row& each) { return each.name == name; });
  return row == kFilters.end() ? nullptr : row->function;
}

}  // namespace attune::text::jinja
