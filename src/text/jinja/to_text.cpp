// Values as text: str, repr and JSON.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/operations.hpp"
#include "text/utf8.hpp"

namespace attune::text::jinja {
namespace {

using Kind = Value::Kind;

/// The shortest digits that read back, placed as Python's repr places them.
std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(),
                  exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  char fixed[400];
  const auto fixed_end =
      std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed).ptr;
  std::string out(fixed, static_cast<std::size_t>(fixed_end - fixed));
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

void append_hex(std::string& out, const char* format, unsigned code) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, format, code);
  out += buffer;
}

std::string quoted_repr(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      append_hex(out, "\\x%02x", static_cast<unsigned char>(c));
    else
      out.push_back(c);
  }
  return out + quote;
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out.push_back('"');
  while (!text.empty()) {
    const Utf8Char c = read_utf8(text);
    switch (c.code) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (c.code < 0x20 || (ensure_ascii && c.code >= 0x7F && c.code < 0x10000)) {
          if (c.code == 0x7F)
            out.push_back('\x7F');
          else
            append_hex(out, "\\u%04x", c.code);
        } else if (ensure_ascii && c.code >= 0x10000) {
          append_hex(out, "\\u%04x", 0xD800 + ((c.code - 0x10000) >> 10));
          append_hex(out, "\\u%04x", 0xDC00 + ((c.code - 0x10000) & 0x3FF));
        } else {
          out.append(text.substr(0, c.length));
        }
    }
    text.remove_prefix(c.length);
  }
  out.push_back('"');
}

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  void write(const Value& value, int level) {
    if (!run_.charge(1)) return;
    switch (value.kind()) {
      case Kind::none: out_ += "null"; break;
      case Kind::boolean: out_ += value.boolean() ? "true" : "false"; break;
      case Kind::integer: out_ += std::to_string(value.integer()); break;
      case Kind::real: write_real(value.number()); break;
      case Kind::string: write_string(value.string()); break;
      case Kind::list: write_list(value.list(), level); break;
      case Kind::dict: write_dict(value.dict(), level); break;
      default: run_.fail("tojson cannot write " + std::string(name(value.kind())));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void write_real(double value) {
    out_ += std::isnan(value)   ? "NaN"
            : std::isinf(value) ? (value > 0 ? "Infinity" : "-Infinity")
                                : real_text(value);
  }

  void write_string(const std::string& text) {
    if (run_.charge_bytes(text.size())) append_json_string(out_, text, style_.ensure_ascii);
  }

  void separate(bool first, int level) {
    if (!first) out_ += style_.item_separator;
    new_line(level);
  }

  void new_line(int level) {
    const auto width = static_cast<std::size_t>(std::max(style_.indent, 0) * level);
    if (style_.indent < 0 || !run_.charge_bytes(width)) return;
    out_.push_back('\n');
    out_.append(width, ' ');
  }

  void write_list(const List& list, int level) {
    if (list.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    for (std::size_t i = 0; i < list.size() && !run_.failed(); ++i) {
      separate(i == 0, level + 1);
      write(list[i], level + 1);
    }
    new_line(level);
    out_.push_back(']');
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    std::vector<const Member*> members;
    for (const Member& member : dict.members()) members.push_back(&member);
    if (style_.sort_keys) {
      std::sort(members.begin(), members.end(),
                [](const Member* a, const Member* b) { return a->first < b->first; });
    }
    out_.push_back('{');
    bool first = true;
    for (const Member* member : members) {
      if (run_.failed()) return;
      separate(std::exchange(first, false), level + 1);
      write_string(member->first);
      out_ += style_.key_separator;
      write(member->second, level + 1);
    }
    new_line(level);
    out_.push_back('}');
  }

  Run& run_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_text(Run& run, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return {};
    case Kind::string: return run.charge_bytes(value.string().size()) ? value.string() : "";
    default: return to_repr(run, value);
  }
}

std::string to_repr(Run& run, const Value& value) {
  if (!run.charge(1)) return {};
  switch (value.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "None";
    case Kind::boolean: return value.boolean() ? "True" : "False";
    case Kind::integer: return std::to_string(value.integer());
    case Kind::real: return real_text(value.number());
    case Kind::string:
      return run.charge_bytes(value.string().size()) ? quoted_repr(value.string()) : "";
    case Kind::list: {
      std::string out = value.is_tuple() ? "(" : "[";
      for (const Value& item : value.list()) {
        if (run.failed()) return {};
        if (out.size() > 1) out += ", ";
        out += to_repr(run, item);
      }
      if (value.is_tuple()) return out + (value.list().size() == 1 ? ",)" : ")");
      return out + "]";
    }
    case Kind::dict: {
      std::string out = "{";
      for (const auto& [key, item] : value.dict().members()) {
        if (run.failed()) return {};
        if (out.size() > 1) out += ", ";
        out += quoted_repr(key) + ": " + to_repr(run, item);
      }
      return out + "}";
    }
    case Kind::function: return "<function>";
    case Kind::space: return "<namespace>";
  }
  return {};
}

std::string to_json(Run& run, const Value& value, const JsonStyle& style) {
  JsonWriter writer(run, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace attune::text::jinja
