// Normalisation: the text before it is split, as a list of steps.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <attune/status.hpp>

#include "text/char_map.hpp"
#include "text/regex.hpp"
#include "text/unicode.hpp"

namespace attune::text {

struct LowercaseText {};
struct StripMarks {};   ///< drops every combining mark; composed letters stay
struct NmtCleaning {};  ///< the clean-up of machine-translation corpora
struct SpellBytes {};   ///< every byte as its character of the byte alphabet
struct StripSpace {
  bool left = true;
  bool right = true;
};
struct PrependText {
  std::string text;
};
struct ReplaceText {
  Regex pattern;
  std::string content;
};
struct BertCleaning {
  bool clean_text = true;
  bool pad_cjk = true;
  bool strip_accents = true;
  bool lowercase = true;
};

using NormalizerStep = std::variant<NormalForm, LowercaseText, StripMarks, NmtCleaning, SpellBytes,
                                    StripSpace, PrependText, ReplaceText, BertCleaning, CharMap>;

/// Runs the steps in order over valid UTF-8.
Result<std::string> run_normalizer(const std::vector<NormalizerStep>& steps, std::string text);

/// Every match of `pattern` in `text` replaced by `content`.
Result<std::string> replace_all(const Regex& pattern, std::string_view content,
                                std::string_view text);

}  // namespace attune::text
