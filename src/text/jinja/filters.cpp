// The filters of single values: value | name(arguments).
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

Value default_filter(Run&, const Value& value, const Args& args) {
  const bool also_false = flag_argument(args, 1, "boolean", false);
  if (!value.is(Kind::undefined) && (!also_false || value.truthy())) return value;
  const Value* otherwise = argument(args, 0, "default_value");
  return otherwise ? *otherwise : Value("");
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
    Row{"e", escape},
    Row{"escape", escape},
    Row{"float", float_filter},
    Row{"indent", indent},
    Row{"int", int_filter},
    Row{"length", length},
    Row{"lower", lower},
    Row{"replace", replace_filter},
    Row{"round", round_filter},
    Row{"safe", same_value},
    Row{"string", string_filter},
    Row{"title", title},
    Row{"tojson", tojson},
    Row{"trim", trim},
    Row{"upper", upper},
};

}  // namespace

FilterFunction find_filter(std::string_view name) {
  const auto* row = std::find_if(kFilters.begin(), kFilters.end(),
                                 [&](const Row& each) { return each.name == name; });
  return row == kFilters.end() ? find_sequence_filter(name) : row->function;
}

}  // namespace attune::text::jinja
