#include "text/jinja/strings.hpp"

#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace attune::text::jinja {
namespace {

using Kind = Value::Kind;

bool goes(std::string_view c, std::string_view chars) {
  if (!chars.empty()) return chars.find(c) != std::string_view::npos;
  const char32_t code = read_utf8(c).code;
  return is_white_space(code) || (code >= 0x1C && code <= 0x1F);
}

std::string_view last_char(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

}  // namespace

const Value* argument(const Args& args, std::size_t index, std::string_view name) {
  if (index < args.positional.size()) return &args.positional[index];
  for (const Member& member : args.named) {
    if (member.first == name) return &member.second;
  }
  return nullptr;
}

std::string string_argument(Run& run, const Args& args, std::size_t index, std::string_view name,
                            std::string_view otherwise) {
  const Value* value = argument(args, index, name);
  if (!value || value->is(Kind::none)) return std::string(otherwise);
  if (value->is(Kind::string)) return value->string();
  run.fail("the argument " + std::string(name) + " wants a string, have " +
           std::string(jinja::name(value->kind())));
  return {};
}

std::int64_t integer_argument(Run& run, const Args& args, std::size_t index, std::string_view name,
                              std::int64_t otherwise) {
  const Value* value = argument(args, index, name);
  if (!value || value->is(Kind::none)) return otherwise;
  if (value->is_integral()) return value->integer();
  run.fail("the argument " + std::string(name) + " wants an integer, have " +
           std::string(jinja::name(value->kind())));
  return otherwise;
}

bool flag_argument(const Args& args, std::size_t index, std::string_view name, bool otherwise) {
  const Value* value = argument(args, index, name);
  return value ? value->truthy() : otherwise;
}

std::string_view strip(std::string_view text, std::string_view chars, Side side) {
  while (side != Side::right && !text.empty()) {
    const std::string_view first = text.substr(0, read_utf8(text).length);
    if (!goes(first, chars)) break;
    text.remove_prefix(first.size());
  }
  while (side != Side::left && !text.empty()) {
    const std::string_view last = last_char(text);
    if (!goes(last, chars)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

Value replace(Run& run, std::string_view text, std::string_view from, std::string_view to,
              std::int64_t count) {
  if (!run.charge_search(text.size(), from.size())) return {};
  std::string out;
  std::size_t done = 0;
  for (std::int64_t i = 0; count < 0 || i < count; ++i) {
    // An empty pattern stands before every character and at the end.
    const std::size_t at = from.empty() ? done : text.find(from, done);
    if (at == std::string_view::npos || !run.charge_bytes(to.size())) break;
    if (out.size() + to.size() > kSizeLimit) return run.fail("a replacement grows too large");
    out.append(text.substr(done, at - done)).append(to);
    done = at + from.size();
    if (!from.empty()) continue;
    if (done == text.size()) return run.checked(std::move(out));
    const std::size_t length = read_utf8(text.substr(done)).length;
    out.append(text.substr(done, length));
    done += length;
  }
  return run.checked(std::move(out.append(text.substr(done))));
}

std::int64_t count_chars(std::string_view text) {
  std::int64_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(read_utf8(text).length);
  return count;
}

std::string_view chars_between(std::string_view text, std::int64_t first, std::int64_t last) {
  const auto bytes_of = [](std::string_view from, std::int64_t chars) {
    std::size_t bytes = 0;
    for (std::int64_t i = 0; i < chars && bytes < from.size(); ++i) {
      bytes += read_utf8(from.substr(bytes)).length;
    }
    return bytes;
  };
  text.remove_prefix(bytes_of(text, first));
  return text.substr(0, bytes_of(text, last - first));
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = read_utf8(text).length;
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

}  // namespace attune::text::jinja
