// The filters: value | name(arguments).
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/library.hpp"
#include "text/jinja/operations.hpp"
#include "text/jinja/strings.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace attune::text::jinja {
namespace {

using Kind = Value::Kind;

Value trim(Run& run, const Value& value, const Args& args) {
  const std::string text = to_text(run, value);
  return run.checked(std::string(strip(text, string_argument(run, args, 0, "chars"), Side::both)));
}

Value upper(Run& run, const Value& value, const Args&) {
  return run.checked(to_upper(to_text(run, value)));
}

Value lower(Run& run, const Value& value, const Args&) {
  return run.checked(to_lower(to_text(run, value)));
}

Value capitalize_filter(Run& run, const Value& value, const Args&) {
  return run.checked(capitalize(to_text(run, value)));
}

Value title(Run& run, const Value& value, const Args&) {
  constexpr std::string_view kBreaks = "-({[<";
  const std::string text = to_text(run, value);
  std::string out;
  bool first = true;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Char c = read_utf8(rest);
    const std::string_view one = rest.substr(0, c.length);
    out += first ? to_upper(one) : to_lower(one);
    first = is_white_space(c.code) || kBreaks.find(one) != std::string_view::npos;
    rest.remove_prefix(c.length);
  }
  return run.checked(std::move(out));
}

Value length(Run& run, const Value& value, const Args&) {
  switch (value.kind()) {
    case Kind::list: return static_cast<std::int64_t>(value.list().size());
    case Kind::dict: return static_cast<std::int64_t>(value.dict().size());
    case Kind::undefined: return std::int64_t{0};
    case Kind::string:
      return run.charge_bytes(value.string().size()) ? Value(count_chars(value.string())) : Value();
    default: return run.fail(std::string(name(value.kind())) + " has no length");
  }
}

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

Value default_filter(Run&, const Value& value, const Args& args) {
  const bool also_false = flag_argument(args, 1, "boolean", false);
  if (!value.is(Kind::undefined) && (!also_false || value.truthy())) return value;
  const Value* otherwise = argument(args, 0, "default_value");
  return otherwise ? *otherwise : Value("");
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

Value replace_filter(Run& run, const Value& value, const Args& args) {
  return replace(run, to_text(run, value), string_argument(run, args, 0, "old"),
                 string_argument(run, args, 1, "new"), integer_argument(run, args, 2, "count", -1));
}

Value string_filter(Run& run, const Value& value, const Args&) {
  return run.checked(to_text(run, value));
}

std::optional<double> parse_real(std::string_view text) {
  text = strip(text, {}, Side::both);
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
  return whole && !text.empty() ? std::optional(number) : std::nullopt;
}

Value int_filter(Run& run, const Value& value, const Args& args) {
  const Value* given = argument(args, 0, "default");
  const Value otherwise = given ? *given : Value(std::int64_t{0});
  const std::int64_t base = integer_argument(run, args, 1, "base", 10);
  if (value.is_integral()) return value.integer();
  if (value.is(Kind::string)) {
    std::string_view text = strip(value.string(), {}, Side::both);
    if (text.starts_with('+')) text.remove_prefix(1);
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    if (base < 2 || base > 36) return run.fail("int wants a base from 2 to 36");
    const auto parsed = std::from_chars(text.data(), end, number, static_cast<int>(base));
    if (parsed.ec == std::errc{} && parsed.ptr == end) return number;
  }
  const std::optional<double> real = value.is(Kind::real)     ? std::optional(value.number())
                                     : value.is(Kind::string) ? parse_real(value.string())
                                                              : std::nullopt;
  const bool fits = real && std::abs(*real) < 9.2e18;
  return fits ? Value(static_cast<std::int64_t>(*real)) : otherwise;
}

Value float_filter(Run&, const Value& value, const Args& args) {
  if (value.is_number()) return value.number();
  if (value.is(Kind::string)) {
    if (const auto number = parse_real(value.string())) return *number;
  }
  const Value* otherwise = argument(args, 0, "default");
  return otherwise ? *otherwise : Value(0.0);
}

Value abs_filter(Run& run, const Value& value, const Args&) {
  if (value.is(Kind::real)) return std::abs(value.number());
  if (!value.is_number()) return run.fail("abs wants a number");
  return value.integer() < 0 ? subtract(run, std::int64_t{0}, value) : value;
}

Value round_filter(Run& run, const Value& value, const Args& args) {
  if (!value.is_number()) return run.fail("round wants a number");
  const std::int64_t digits = integer_argument(run, args, 0, "precision", 0);
  const std::string method = string_argument(run, args, 1, "method", "common");
  if (digits < -300 || digits > 300) return run.fail("round wants a precision of -300 to 300");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.number() * scale;
  if (method == "ceil") return std::ceil(scaled) / scale;
  if (method == "floor") return std::floor(scaled) / scale;
  return std::nearbyint(scaled) / scale;
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

Value indent(Run& run, const Value& value, const Args& args) {
  const std::string text = to_text(run, value);
  const Value* width = argument(args, 0, "width");
  constexpr std::int64_t kWidest = 1000;
  const std::int64_t columns =
      width && width->is(Kind::string) ? 0 : integer_argument(run, args, 0, "width", 4);
  if (columns < 0 || columns > kWidest) return run.fail("indent wants a width of 0 to 1000");
  const std::string margin = width && width->is(Kind::string)
                                 ? width->string()
                                 : std::string(static_cast<std::size_t>(columns), ' ');
  const bool first = flag_argument(args, 1, "first", false);
  const bool blank = flag_argument(args, 2, "blank", false);
  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (!run.charge_bytes(margin.size())) return {};
    const bool wanted = begin == 0 ? first : blank || end > begin;
    if (begin > 0) out += '\n';
    if (wanted) out += margin;
    out.append(text, begin, end - begin);
    if (out.size() > kSizeLimit) return run.fail("indent grows a string too large");
    begin = end + 1;
  }
  return run.checked(std::move(out));
}

Value same_value(Run&, const Value& value, const Args&) { return value; }

Value escape(Run& run, const Value& value, const Args&) {
  std::string out;
  for (const char c : to_text(run, value)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out.push_back(c);
    }
  }
  return run.checked(std::move(out));
}

/// As transformers defines it: json.dumps, without HTML escapes.
Value tojson(Run& run, const Value& value, const Args& args) {
  JsonStyle style;
  style.ensure_ascii = flag_argument(args, 0, "ensure_ascii", false);
  const std::int64_t indent_by = integer_argument(run, args, 1, "indent", -1);
  if (indent_by > 100) return run.fail("tojson wants an indent of at most 100");
  style.indent = static_cast<int>(std::max<std::int64_t>(indent_by, -1));
  if (style.indent >= 0) style.item_separator = ",";
  const Value* separators = argument(args, 2, "separators");
  if (separators && !separators->is(Kind::none)) {
    const List pair = iterate(run, *separators);
    if (pair.size() != 2) return run.fail("tojson wants two separators");
    style.item_separator = to_text(run, pair[0]);
    style.key_separator = to_text(run, pair[1]);
  }
  style.sort_keys = flag_argument(args, 3, "sort_keys", false);
  return run.checked(to_json(run, value, style));
}

Value attr(Run& run, const Value& value, const Args& args) {
  return attribute(run, value, string_argument(run, args, 0, "name"));
}

struct Row {
  std::string_view name;
  FilterFunction function;
};

constexpr std::array kFilters = {
    Row{"abs", abs_filter},
    Row{"attr", attr},
    Row{"capitalize", capitalize_filter},
    Row{"count", length},
    Row{"d", default_filter},
    Row{"default", default_filter},
    Row{"dictsort", dictsort},
    Row{"e", escape},
    Row{"escape", escape},
    Row{"first", first},
    Row{"float", float_filter},
    Row{"indent", indent},
    Row{"int", int_filter},
    Row{"items", items},
    Row{"join", join},
    Row{"last", last},
    Row{"length", length},
    Row{"list", list},
    Row{"lower", lower},
    Row{"map", map},
    Row{"max", max},
    Row{"min", min},
    Row{"reject", reject},
    Row{"rejectattr", rejectattr},
    Row{"replace", replace_filter},
    Row{"reverse", reverse},
    Row{"round", round_filter},
    Row{"safe", same_value},
    Row{"select", select},
    Row{"selectattr", selectattr},
    Row{"sort", sort},
    Row{"string", string_filter},
    Row{"sum", sum},
    Row{"title", title},
    Row{"tojson", tojson},
    Row{"trim", trim},
    Row{"unique", unique},
    Row{"upper", upper},
};

}  // namespace

FilterFunction find_filter(std::string_view name) {
  const auto* row = std::find_if(kFilters.begin(), kFilters.end(),
                                 [&](const Row& each) { return each.name == name; });
  return row == kFilters.end() ? nullptr : row->function;
}

}  // namespace attune::text::jinja
