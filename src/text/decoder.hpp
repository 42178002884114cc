// From pieces back to text, as a list of steps.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <attune/status.hpp>

#include "text/regex.hpp"

namespace attune::text {

struct ReadByteAlphabet {};  ///< characters of the byte alphabet to bytes
struct ReadByteTokens {};    ///< "<0x0A>" to its byte
struct JoinTokens {};        ///< one token from all, so that later steps see the whole
struct ReplaceInTokens {
  Regex pattern;
  std::string content;
};
struct StripTokens {  ///< up to `start` and `stop` times `content` off the ends of each token
  char32_t content = U' ';
  std::size_t start = 0;
  std::size_t stop = 0;
};
struct MetaspaceToSpace {
  std::string replacement = "\u2581";
  bool drop_first = true;  ///< the mark that encoding put before the first word
};
struct JoinWordPieces {
  std::string prefix = "##";
  bool cleanup = true;  ///< takes the space before punctuation and contractions away
};
struct SuffixToSpace {
  std::string suffix = "</w>";
};

using DecoderStep = std::variant<ReadByteAlphabet, ReadByteTokens, JoinTokens, ReplaceInTokens,
                                 StripTokens, MetaspaceToSpace, JoinWordPieces, SuffixToSpace>;

/// What becomes of bytes that are no UTF-8.
enum class BrokenBytes {
  keep,     ///< the caller assembles characters, as a stream does
  replace,  ///< U+FFFD; one for each byte of a run of byte tokens, as Hugging Face does
};

/// The text of `tokens`. Without steps they are joined by spaces.
std::string decode(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens,
                   BrokenBytes broken);

}  // namespace attune::text
