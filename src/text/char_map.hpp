// The precompiled character map of a SentencePiece model: short strings to their replacements, as a
// double-array trie with the replacements behind it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

namespace attune::text {

class CharMap {
 public:
  /// `blob`: u32 size of the trie in bytes, the trie's u32 units, then NUL-terminated strings.
  static Result<CharMap> parse(std::string_view blob);

  /// Replaces whole grapheme clusters where the map holds one, single characters elsewhere.
  [[nodiscard]] std::string apply(std::string_view text) const;

 private:
  /// The replacement of the shortest prefix of `text` in the map: null where there is none.
  [[nodiscard]] const char* find(std::string_view text) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace attune::text
