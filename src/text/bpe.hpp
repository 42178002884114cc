// Byte-pair encoding (Sennrich et al., arXiv:1508.07909): symbols are merged in the order in which
// training found their pairs, the leftmost first among equals.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/subword_model.hpp"

namespace attune::text {

struct BpeOptions {
  /// Pre-tokens are raw bytes and pieces are spelled in the byte alphabet.
  bool byte_level = false;
  bool byte_fallback = false;
  /// A pre-token that is a piece is taken whole, without merging.
  bool ignore_merges = false;
  /// Neighbouring unknown characters become one unknown token.
  bool fuse_unk = false;
  std::optional<std::string> unk_token = {};
  std::string continuing_subword_prefix = {};
  std::string end_of_word_suffix = {};
};

using MergeRule = std::pair<std::string, std::string>;

/// `merges` in order of rank.
Result<std::unique_ptr<SubwordModel>> make_bpe(Vocabulary vocabulary,
                                               const std::vector<MergeRule>& merges,
                                               BpeOptions options);

/// BPE of SentencePiece: any two neighbours whose text is a piece may merge, the best score first.
/// `mergeable` is indexed by id and says which pieces take part (ordinary ones).
Result<std::unique_ptr<SubwordModel>> make_scored_bpe(Vocabulary vocabulary,
                                                      const std::vector<float>& scores,
                                                      const std::vector<bool>& mergeable,
                                                      BpeOptions options);

}  // namespace attune::text
