// WordPiece (Schuster and Nakajima, 2012; BERT): greedy longest match from the left, continuations
// marked by a prefix; and WordLevel, its case without continuations.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "text/subword_model.hpp"

namespace attune::text {

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_prefix = "##";
  std::size_t max_chars_per_word = 100;  ///< a longer word is unknown
};

Result<std::unique_ptr<SubwordModel>> make_word_piece(Vocabulary vocabulary,
                                                      WordPieceOptions options);

Result<std::unique_ptr<SubwordModel>> make_word_level(Vocabulary vocabulary,
                                                      const std::string& unk_token);

}  // namespace attune::text
