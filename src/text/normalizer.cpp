#include "text/normalizer.hpp"

#include "text/byte_alphabet.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

/// Applies `emit(code, out)` to each character.
template <class Emit>
std::string map_chars(std::string_view text, Emit emit) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = read_utf8(text);
    emit(c.code, out);
    text.remove_prefix(c.length);
  }
  return out;
}

std::string clean(std::string_view text) {
  return map_chars(text, [](char32_t c, std::string& out) {
    if (c == 0 || c == kReplacement || is_control(c)) return;
    append_utf8(out, is_white_space(c) ? U' ' : c);
  });
}

std::string pad_cjk(std::string_view text) {
  return map_chars(text, [](char32_t c, std::string& out) {
    const bool pad = is_cjk_ideograph(c);
    if (pad) out.push_back(' ');
    append_utf8(out, c);
    if (pad) out.push_back(' ');
  });
}

struct Apply {
  std::string text;

  Result<std::string> operator()(NormalForm form) { return normalize(text, form); }
  Result<std::string> operator()(LowercaseText) { return to_lower(text); }
  Result<std::string> operator()(StripMarks) {
    return map_chars(text, [](char32_t c, std::string& out) {
      if (!is_mark(c)) append_utf8(out, c);
    });
  }
  Result<std::string> operator()(NmtCleaning) {
    return map_chars(text, [](char32_t c, std::string& out) {
      const bool dropped = (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) ||
                           c == 0x7F || c == 0x8F || c == 0x9F;
      if (dropped) return;
      const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      append_utf8(out, space ? U' ' : c);
    });
  }
  Result<std::string> operator()(SpellBytes) { return to_byte_alphabet(text); }
  Result<std::string> operator()(StripSpace strip) {
    std::string_view view = text;
    if (strip.left) view.remove_prefix(leading_space(view));
    if (strip.right) view.remove_suffix(trailing_space(view));
    return std::string(view);
  }
  Result<std::string> operator()(const PrependText& prepend) {
    return text.empty() ? std::string() : prepend.text + text;
  }
  Result<std::string> operator()(const ReplaceText& replace) {
    return replace_all(replace.pattern, replace.content, text);
  }
  Result<std::string> operator()(const BertCleaning& bert) {
    if (bert.clean_text) text = clean(text);
    if (bert.pad_cjk) text = pad_cjk(text);
    if (bert.strip_accents) {
      text = map_chars(normalize(text, NormalForm::nfd), [](char32_t c, std::string& out) {
        if (!is_nonspacing_mark(c)) append_utf8(out, c);
      });
    }
    if (bert.lowercase) text = to_lower(text);
    return std::move(text);
  }
  Result<std::string> operator()(const CharMap& map) { return map.apply(text); }
};

}  // namespace

Result<std::string> replace_all(const Regex& pattern, std::string_view content,
                                std::string_view text) {
  std::string out;
  std::size_t done = 0;
  Regex::Matcher matcher(pattern);
  matcher.reset(text);
  for (;;) {
    const auto match = matcher.next();
    if (!match.ok()) return match.status();
    if (!*match) break;
    out.append(text.substr(done, (*match)->begin - done)).append(content);
    done = (*match)->end;
  }
  return out.append(text.substr(done));
}

Result<std::string> run_normalizer(const std::vector<NormalizerStep>& steps, std::string text) {
  for (const NormalizerStep& step : steps) {
    Apply visitor{std::move(text)};
    auto next = std::visit(visitor, step);
    if (!next.ok()) return next.status();
    text = std::move(*next);
  }
  return text;
}

}  // namespace attune::text
