// Character classes, case and normal forms, as the tokenizers of Hugging Face use them. The data
// are utf8proc's; a character younger than its Unicode version counts as unassigned.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attune::text {

[[nodiscard]] bool is_white_space(char32_t c);      ///< property White_Space
[[nodiscard]] bool is_numeric(char32_t c);          ///< categories N*
[[nodiscard]] bool is_punctuation(char32_t c);      ///< P*, and the ASCII signs ($ + < = > ^ ` | ~)
[[nodiscard]] bool is_control(char32_t c);          ///< Cc, Cf, Co, but not tab, LF, CR
[[nodiscard]] bool is_nonspacing_mark(char32_t c);  ///< Mn
[[nodiscard]] bool is_mark(char32_t c);             ///< M*
[[nodiscard]] bool is_word(char32_t c);             ///< \w of UTS 18
[[nodiscard]] bool is_cjk_ideograph(char32_t c);    ///< the blocks BERT sets apart with spaces

/// Length in bytes of the white space at the front or at the back.
[[nodiscard]] std::size_t leading_space(std::string_view text);
[[nodiscard]] std::size_t trailing_space(std::string_view text);

/// Lower case, character by character (no context: a final sigma stays the ordinary one).
[[nodiscard]] std::string to_lower(std::string_view text);

/// Upper case, character by character; sharp s becomes two.
[[nodiscard]] std::string to_upper(std::string_view text);

enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// The normal form of valid UTF-8. Linear but for the sort inside a run of combining marks, so
/// that hostile runs stay cheap.
[[nodiscard]] std::string normalize(std::string_view text, NormalForm form);

}  // namespace attune::text
