// What the models BPE, Unigram, WordPiece and WordLevel have in common: pieces of text to ids.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include <attune/status.hpp>

#include "text/token_id.hpp"
#include "text/vocabulary.hpp"

namespace attune::text {

class SubwordModel {
 public:
  explicit SubwordModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~SubwordModel() = default;
  SubwordModel(const SubwordModel&) = delete;
  SubwordModel& operator=(const SubwordModel&) = delete;

  /// Appends the ids of one pre-token (not empty). Safe to call from several threads.
  virtual Status encode(std::string_view piece, std::vector<TokenId>& out) const = 0;

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

/// The id of each byte's piece "<0x00>" to "<0xFF>", or -1.
[[nodiscard]] std::vector<TokenId> byte_fallback_ids(const Vocabulary& vocabulary);

}  // namespace attune::text
