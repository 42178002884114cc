#include "text/decoder.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "text/byte_alphabet.hpp"
#include "text/normalizer.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

using Tokens = std::vector<std::string>;

std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc{} || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

void replace_text(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  std::string out;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != std::string::npos; done = at + from.size()) {
    out.append(text, done, at - done).append(to);
  }
  text = out.append(text, done);
}

std::string joined(const Tokens& tokens, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += separator;
    out += tokens[i];
  }
  return out;
}

std::string_view stripped(std::string_view token, const StripTokens& strip) {
  std::string content;
  append_utf8(content, strip.content);
  for (std::size_t i = 0; i < strip.start && token.starts_with(content); ++i) {
    token.remove_prefix(content.size());
  }
  for (std::size_t i = 0; i < strip.stop && token.ends_with(content); ++i) {
    token.remove_suffix(content.size());
  }
  return token;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kCleanups{{
    {" .", "."},
    {" ?", "?"},
    {" !", "!"},
    {" ,", ","},
    {" ' ", "'"},
    {" n't", "n't"},
    {" 'm", "'m"},
    {" do not", " don't"},
    {" 's", "'s"},
    {" 've", "'ve"},
    {" 're", "'re"},
}};

struct Apply {
  Tokens& tokens;
  BrokenBytes broken;

  void operator()(ReadByteAlphabet) const {
    std::string bytes;
    for (const std::string& token : tokens) {
      const auto raw = from_byte_alphabet(token);
      bytes += raw ? *raw : token;
    }
    if (broken == BrokenBytes::replace) bytes = to_valid_utf8(bytes);
    tokens.assign(1, std::move(bytes));
  }

  void operator()(ReadByteTokens) const {
    Tokens out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (broken == BrokenBytes::replace && !is_valid_utf8(run)) {
        std::string marks;
        for (std::size_t i = 0; i < run.size(); ++i) append_utf8(marks, kReplacement);
        run = std::move(marks);
      }
      out.push_back(std::exchange(run, {}));
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        run.push_back(*byte);
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }

  void operator()(JoinTokens) const { tokens.assign(1, joined(tokens, "")); }

  void operator()(const ReplaceInTokens& replace) const {
    for (std::string& token : tokens) {
      if (!is_valid_utf8(token)) continue;  // half a character: nothing a pattern could match
      auto replaced = replace_all(replace.pattern, replace.content, token);
      if (replaced.ok()) token = std::move(*replaced);
    }
  }

  void operator()(const StripTokens& strip) const {
    for (std::string& token : tokens) token = std::string(stripped(token, strip));
  }

  void operator()(const MetaspaceToSpace& metaspace) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      replace_text(tokens[i], metaspace.replacement, i == 0 && metaspace.drop_first ? "" : " ");
    }
  }

  void operator()(const JoinWordPieces& pieces) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) {
        if (token.starts_with(pieces.prefix))
          token.erase(0, pieces.prefix.size());
        else
          token.insert(token.begin(), ' ');
      }
      if (!pieces.cleanup) continue;
      for (const auto& [from, to] : kCleanups) replace_text(token, from, to);
    }
  }

  void operator()(const SuffixToSpace& suffix) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      replace_text(tokens[i], suffix.suffix, i + 1 < tokens.size() ? " " : "");
    }
  }
};

}  // namespace

std::string decode(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens,
                   BrokenBytes broken) {
  if (steps.empty()) return joined(tokens, " ");
  for (const DecoderStep& step : steps) std::visit(Apply{tokens, broken}, step);
  return joined(tokens, "");
}

}  // namespace attune::text
