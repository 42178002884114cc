#include "text/unigram.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

#include "text/trie.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

// SentencePiece's constant: an unknown character costs this much more than the worst piece.
constexpr double kUnknownPenalty = 10.0;

class Unigram final : public SubwordModel {
 public:
  Unigram(Vocabulary words, std::vector<double> scores, std::optional<TokenId> unk,
          bool byte_fallback)
      : SubwordModel(std::move(words)), scores_(std::move(scores)), unk_(unk) {
    if (byte_fallback) fallback_ = byte_fallback_ids(vocabulary());
    for (TokenId id = 0; id < vocabulary().id_end(); ++id) {
      const auto piece = vocabulary().piece_of(id);
      const bool in_text = id != unk_ && !vocabulary().is_hidden(id);
      if (piece && !piece->empty() && in_text) pieces_.insert(*piece, id);
    }
    unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  }

  Status encode(std::string_view piece, std::vector<TokenId>& out) const override {
    std::vector<Step> best(piece.size() + 1);  // best[i]: the last piece of the best path to i
    for (std::size_t begin = 0; begin < piece.size();) {
      const std::size_t length = read_utf8(piece.substr(begin)).length;
      const double so_far = best[begin].score;
      bool has_single = false;
      std::optional<Trie::Node> node = Trie::kRoot;
      for (std::size_t end = begin; end < piece.size();) {
        node = pieces_.step(*node, piece[end]);
        if (!node) break;
        ++end;
        const TokenId id = pieces_.value(*node);
        if (id < 0) continue;
        relax(best[end], so_far + scores_[static_cast<std::size_t>(id)], begin, id);
        has_single = has_single || end - begin == length;
      }
      if (!has_single) {
        if (!unk_) return no_unknown();
        relax(best[begin + length], so_far + unknown_score_, begin, *unk_);
      }
      begin += length;
    }
    return emit(piece, best, out);
  }

 private:
  struct Step {
    double score = 0;
    std::size_t begin = 0;
    TokenId id = -1;
  };

  static Status no_unknown() {
    return invalid_argument(
        "tokenizer: the text has a character outside the vocabulary, and the "
        "Unigram model names no unknown token");
  }

  static void relax(Step& step, double score, std::size_t begin, TokenId id) {
    if (step.id < 0 || score > step.score) step = {score, begin, id};
  }

  Status emit(std::string_view piece, const std::vector<Step>& best,
              std::vector<TokenId>& out) const {
    std::vector<std::size_t> ends;
    for (std::size_t end = piece.size(); end > 0; end = best[end].begin) ends.push_back(end);
    std::size_t unknown_begin = piece.size();
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
      const Step& step = best[*end];
      if (step.id == unk_) {  // neighbouring unknown characters are one unknown string
        unknown_begin = std::min(unknown_begin, step.begin);
        continue;
      }
      if (unknown_begin < step.begin) {
        emit_unknown(piece.substr(unknown_begin, step.begin - unknown_begin), out);
      }
      unknown_begin = piece.size();
      out.push_back(step.id);
    }
    if (unknown_begin < piece.size()) emit_unknown(piece.substr(unknown_begin), out);
    return {};
  }

  void emit_unknown(std::string_view text, std::vector<TokenId>& out) const {
    if (const auto id = vocabulary().id_in_text(text)) {
      out.push_back(*id);
      return;
    }
    const auto id_of_byte = [this](char byte) {
      return fallback_[static_cast<unsigned char>(byte)];
    };
    const bool falls_back =
        !fallback_.empty() &&
        std::all_of(text.begin(), text.end(), [&](char byte) { return id_of_byte(byte) >= 0; });
    if (falls_back) {
      std::transform(text.begin(), text.end(), std::back_inserter(out), id_of_byte);
    } else {
      out.push_back(*unk_);
    }
  }

  std::vector<double> scores_;
  std::optional<TokenId> unk_;
  std::vector<TokenId> fallback_;
  Trie pieces_;
  double unknown_score_ = 0;
};

}  // namespace

Result<std::unique_ptr<SubwordModel>> make_unigram(Vocabulary vocabulary,
                                                   std::vector<double> scores,
                                                   std::optional<TokenId> unk, bool byte_fallback) {
  if (scores.empty()) return invalid_argument("tokenizer: the Unigram vocabulary is empty");
  require(scores.size() >= static_cast<std::size_t>(vocabulary.id_end()), "a score for each id");
  if (unk && (*unk < 0 || *unk >= vocabulary.id_end())) {
    return invalid_argument("tokenizer: unk_id " + std::to_string(*unk) +
                            " is outside the vocabulary of " + std::to_string(vocabulary.id_end()));
  }
  for (TokenId id = 0; id < vocabulary.id_end(); ++id) {
    const auto piece = vocabulary.piece_of(id);
    if (piece && piece->size() > kMaxPieceBytes) {
      return invalid_argument("tokenizer: piece " + std::to_string(id) + " is longer than " +
                              std::to_string(kMaxPieceBytes) + " bytes");
    }
  }
  return std::unique_ptr<SubwordModel>(
      std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), unk, byte_fallback));
}

}  // namespace attune::text
