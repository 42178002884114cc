// Pre-tokenisation: normalised text into the pieces that a model encodes one by one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <attune/status.hpp>

#include "text/regex.hpp"

namespace attune::text {

/// What becomes of a match when a text is split at it.
enum class SplitBehavior { removed, isolated, contiguous, merged_with_previous, merged_with_next };

struct SplitAtRegex {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< split at what the pattern does not match
};
struct SplitAtClass {
  bool (*contains)(char32_t) = nullptr;
  SplitBehavior behavior = SplitBehavior::isolated;
};
struct SplitAtChar {
  char32_t delimiter = U' ';
};
struct SplitEvery {
  std::size_t chars = 1;
};
struct AddPrefixSpace {};   ///< " " before each piece that does not begin with one
struct SpellPieceBytes {};  ///< every byte as its character of the byte alphabet
struct Metaspace {
  enum class Prepend { never, first, always };
  std::string replacement = "\u2581";
  Prepend prepend = Prepend::always;
  bool split = true;
};

using PreTokenizerStep = std::variant<SplitAtRegex, SplitAtClass, SplitAtChar, SplitEvery,
                                      AddPrefixSpace, SpellPieceBytes, Metaspace>;

/// A text cut into pieces. Steps that change the text write a new one.
struct Pieces {
  std::string text;
  std::vector<ByteRange> ranges;  ///< non-empty, ascending
  bool at_start = false;          ///< the first range is the start of the whole input

  [[nodiscard]] std::string_view operator[](std::size_t i) const {
    return std::string_view(text).substr(ranges[i].begin, ranges[i].end - ranges[i].begin);
  }
};

/// Runs the steps in order. `at_start` says whether `text` begins the whole input.
Result<Pieces> pre_tokenize(const std::vector<PreTokenizerStep>& steps, std::string text,
                            bool at_start);

/// The pattern of GPT-2's tokenizer, which "ByteLevel" stands for.
[[nodiscard]] std::string_view gpt2_pattern();

}  // namespace attune::text
