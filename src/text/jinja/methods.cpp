// The methods of strings, lists and mappings.
#include <algorithm>
#include <array>

#include "text/jinja/library.hpp"
#include "text/jinja/operations.hpp"
#include "text/jinja/strings.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace attune::text::jinja {
namespace {

using Kind = Value::Kind;
using Method = Value (*)(Run&, const Value&, const Args&);

template <Side side>
Value strip_method(Run& run, const Value& self, const Args& args) {
  return run.checked(
      std::string(strip(self.string(), string_argument(run, args, 0, "chars"), side)));
}

/// The words between white space; after `limit` cuts the rest stays whole.
List split_words(Run& run, std::string_view text, std::int64_t limit, Side from) {
  const bool forward = from == Side::left;
  List words;
  text = strip(text, {}, forward ? Side::left : Side::right);
  while (!text.empty() && run.charge(kStepsPerItem)) {
    if (limit >= 0 && static_cast<std::int64_t>(words.size()) == limit) {
      words.emplace_back(std::string(text));  // with the white space at its far end
      break;
    }
    std::size_t length = 0;
    if (forward) {
      while (length < text.size() && leading_space(text.substr(length)) == 0) {
        length += read_utf8(text.substr(length)).length;
      }
      words.emplace_back(std::string(text.substr(0, length)));
      text.remove_prefix(length);
    } else {
      while (length < text.size() && trailing_space(text.substr(0, text.size() - length)) == 0) {
        ++length;
      }
      words.emplace_back(std::string(text.substr(text.size() - length)));
      text.remove_suffix(length);
    }
    text = strip(text, {}, forward ? Side::left : Side::right);
  }
  if (!forward) std::reverse(words.begin(), words.end());
  return words;
}

Value split_from(Run& run, const Value& self, const Args& args, Side from) {
  const std::string_view text = self.string();
  const std::int64_t limit = integer_argument(run, args, 1, "maxsplit", -1);
  const Value* given = argument(args, 0, "sep");
  if (!run.charge_bytes(text.size())) return {};
  if (!given || given->is(Kind::none)) return run.checked(split_words(run, text, limit, from));
  const std::string separator = string_argument(run, args, 0, "sep");
  if (separator.empty()) return run.fail("split wants a separator that is not empty");
  if (!run.charge_search(text.size(), separator.size())) return {};
  List parts;
  const auto may_cut = [&] {
    return run.charge(kStepsPerItem) &&
           (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit);
  };
  std::size_t begin = 0, end = text.size();
  if (from == Side::left) {
    for (std::size_t at;
         may_cut() && (at = text.find(separator, begin)) != std::string_view::npos;) {
      parts.emplace_back(std::string(text.substr(begin, at - begin)));
      begin = at + separator.size();
    }
    parts.emplace_back(std::string(text.substr(begin)));
  } else {
    while (may_cut() && end >= separator.size()) {
      const std::size_t at = text.rfind(separator, end - separator.size());
      if (at == std::string_view::npos) break;
      parts.emplace_back(
          std::string(text.substr(at + separator.size(), end - at - separator.size())));
      end = at;
    }
    parts.emplace_back(std::string(text.substr(0, end)));
    std::reverse(parts.begin(), parts.end());
  }
  return run.checked(std::move(parts));
}

Value split(Run& run, const Value& self, const Args& args) {
  return split_from(run, self, args, Side::left);
}
Value rsplit(Run& run, const Value& self, const Args& args) {
  return split_from(run, self, args, Side::right);
}

Value splitlines(Run& run, const Value& self, const Args&) {
  const std::string& text = self.string();
  if (!run.charge_bytes(text.size())) return {};
  List lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
    if (!run.charge(kStepsPerItem)) return {};
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + (text.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return run.checked(std::move(lines));
}

/// True if `matches` does for the string, or for one of the strings in a list.
template <class Matches>
Value any_affix(Run& run, const Args& args, Matches matches) {
  if (args.positional.size() != 1) return run.fail("startswith and endswith want one argument");
  const Value& affix = args.positional.front();
  const List affixes = affix.is(Kind::list) ? affix.list() : List{affix};
  for (const Value& each : affixes) {
    if (!each.is(Kind::string)) return run.fail("startswith and endswith want strings");
    if (matches(each.string())) return true;
  }
  return false;
}

Value startswith(Run& run, const Value& self, const Args& args) {
  return any_affix(run, args, [&](const std::string& a) { return self.string().starts_with(a); });
}
Value endswith(Run& run, const Value& self, const Args& args) {
  return any_affix(run, args, [&](const std::string& a) { return self.string().ends_with(a); });
}

Value removeprefix(Run& run, const Value& self, const Args& args) {
  const std::string prefix = string_argument(run, args, 0, "prefix");
  const bool has = self.string().starts_with(prefix);
  return run.checked(self.string().substr(has ? prefix.size() : 0));
}
Value removesuffix(Run& run, const Value& self, const Args& args) {
  const std::string suffix = string_argument(run, args, 0, "suffix");
  const bool has = self.string().ends_with(suffix);
  return run.checked(self.string().substr(0, self.string().size() - (has ? suffix.size() : 0)));
}

Value replace_method(Run& run, const Value& self, const Args& args) {
  return replace(run, self.string(), string_argument(run, args, 0, "old"),
                 string_argument(run, args, 1, "new"), integer_argument(run, args, 2, "count", -1));
}

template <const char* FilterName>
Value as_filter(Run& run, const Value& self, const Args& args) {
  return find_filter(FilterName)(run, self, args);
}
constexpr char kUpper[] = "upper", kLower[] = "lower", kTitle[] = "title",
               kCapitalize[] = "capitalize", kItems[] = "items";

Value find(Run& run, const Value& self, const Args& args) {
  const std::string wanted = string_argument(run, args, 0, "sub");
  if (!run.charge_search(self.string().size(), wanted.size())) return {};
  const std::size_t at = self.string().find(wanted);
  if (at == std::string::npos) return std::int64_t{-1};
  return count_chars(std::string_view(self.string()).substr(0, at));
}
Value rfind(Run& run, const Value& self, const Args& args) {
  const std::string wanted = string_argument(run, args, 0, "sub");
  if (!run.charge_search(self.string().size(), wanted.size())) return {};
  const std::size_t at = self.string().rfind(wanted);
  if (at == std::string::npos) return std::int64_t{-1};
  return count_chars(std::string_view(self.string()).substr(0, at));
}

Value count(Run& run, const Value& self, const Args& args) {
  const std::string wanted = string_argument(run, args, 0, "sub");
  if (wanted.empty()) return count_chars(self.string()) + 1;
  if (!run.charge_search(self.string().size(), wanted.size())) return {};
  std::int64_t total = 0;
  for (std::size_t at = 0; (at = self.string().find(wanted, at)) != std::string::npos; ++total) {
    at += wanted.size();
  }
  return total;
}

Value join(Run& run, const Value& self, const Args& args) {
  if (args.positional.size() != 1) return run.fail("join wants one argument");
  for (const Value& item : iterate(run, args.positional.front())) {
    if (!item.is(Kind::string)) return run.fail("join wants strings");
  }
  return find_filter("join")(run, args.positional.front(), {.positional = {self}, .named = {}});
}

/// True for a text that is not empty and whose characters all satisfy `holds`.
template <class Holds>
Value all_chars(Run& run, const Value& self, Holds holds) {
  std::string_view text = self.string();
  if (!run.charge_bytes(text.size())) return {};
  bool all = !text.empty();
  while (all && !text.empty()) {
    const Utf8Char c = read_utf8(text);
    all = holds(c.code);
    text.remove_prefix(c.length);
  }
  return all;
}

bool is_letter(char32_t c) { return is_word(c) && !is_numeric(c) && !is_mark(c) && c != '_'; }
Value isdigit(Run& run, const Value& self, const Args&) { return all_chars(run, self, is_numeric); }
Value isspace(Run& run, const Value& self, const Args&) {
  return all_chars(run, self, is_white_space);
}
Value isalpha(Run& run, const Value& self, const Args&) { return all_chars(run, self, is_letter); }
Value isalnum(Run& run, const Value& self, const Args&) {
  return all_chars(run, self, [](char32_t c) { return is_letter(c) || is_numeric(c); });
}
Value isupper(Run& run, const Value& self, const Args& args) {
  return find_test("upper")(run, self, args);
}
Value islower(Run& run, const Value& self, const Args& args) {
  return find_test("lower")(run, self, args);
}

Value keys(Run& run, const Value& self, const Args&) { return run.checked(iterate(run, self)); }

Value values(Run& run, const Value& self, const Args&) {
  List out;
  for (const Member& member : self.dict().members()) out.push_back(member.second);
  return run.checked(std::move(out));
}

Value get(Run& run, const Value& self, const Args& args) {
  const Value* key = argument(args, 0, "key");
  if (!key) return run.fail("get wants a key");
  const Value* found = key->is(Kind::string) ? self.dict().find(key->string()) : nullptr;
  if (found) return *found;
  const Value* otherwise = argument(args, 1, "default");
  return otherwise ? *otherwise : Value::none();
}

Value index(Run& run, const Value& self, const Args& args) {
  if (args.positional.size() != 1) return run.fail("index wants one argument");
  for (std::size_t i = 0; i < self.list().size(); ++i) {
    if (equal(run, self.list()[i], args.positional.front())) return static_cast<std::int64_t>(i);
  }
  return run.fail("index does not find its argument in the list");
}

Value count_items(Run& run, const Value& self, const Args& args) {
  if (args.positional.size() != 1) return run.fail("count wants one argument");
  return static_cast<std::int64_t>(
      std::count_if(self.list().begin(), self.list().end(),
                    [&](const Value& item) { return equal(run, item, args.positional.front()); }));
}

struct Row {
  Kind kind;
  std::string_view name;
  Method method;
};

constexpr std::array kMethods = {
    Row{Kind::string, "capitalize", as_filter<kCapitalize>},
    Row{Kind::string, "count", count},
    Row{Kind::string, "endswith", endswith},
    Row{Kind::string, "find", find},
    Row{Kind::string, "isalnum", isalnum},
    Row{Kind::string, "isalpha", isalpha},
    Row{Kind::string, "isdigit", isdigit},
    Row{Kind::string, "islower", islower},
    Row{Kind::string, "isspace", isspace},
    Row{Kind::string, "isupper", isupper},
    Row{Kind::string, "join", join},
    Row{Kind::string, "lower", as_filter<kLower>},
    Row{Kind::string, "lstrip", strip_method<Side::left>},
    Row{Kind::string, "removeprefix", removeprefix},
    Row{Kind::string, "removesuffix", removesuffix},
    Row{Kind::string, "replace", replace_method},
    Row{Kind::string, "rfind", rfind},
    Row{Kind::string, "rsplit", rsplit},
    Row{Kind::string, "rstrip", strip_method<Side::right>},
    Row{Kind::string, "split", split},
    Row{Kind::string, "splitlines", splitlines},
    Row{Kind::string, "startswith", startswith},
    Row{Kind::string, "strip", strip_method<Side::both>},
    Row{Kind::string, "title", as_filter<kTitle>},
    Row{Kind::string, "upper", as_filter<kUpper>},
    Row{Kind::dict, "get", get},
    Row{Kind::dict, "items", as_filter<kItems>},
    Row{Kind::dict, "keys", keys},
    Row{Kind::dict, "values", values},
    Row{Kind::list, "count", count_items},
    Row{Kind::list, "index", index},
};

}  // namespace

std::optional<Value> find_method(const Value& object, std::string_view name) {
  const auto* row = std::find_if(kMethods.begin(), kMethods.end(), [&](const Row& each) {
    return each.kind == object.kind() && each.name == name;
  });
  if (row == kMethods.end()) return std::nullopt;
  return Value::function([self = object, method = row->method](Run& run, const Args& args) {
    return method(run, self, args);
  });
}

}  // namespace attune::text::jinja
