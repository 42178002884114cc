#include "text/bpe.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <tuple>

#include "text/byte_alphabet.hpp"
#include "text/merge_table.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

constexpr TokenId kMissing = -1;

class Bpe final : public SubwordModel {
 public:
  Bpe(Vocabulary words, MergeTable merges, TokenId unk, BpeOptions options)
      : SubwordModel(std::move(words)),
        merges_(std::move(merges)),
        options_(std::move(options)),
        unk_(unk),
        decorated_(!options_.continuing_subword_prefix.empty() ||
                   !options_.end_of_word_suffix.empty()) {
    if (options_.byte_fallback) fallback_ = byte_fallback_ids(vocabulary());
    for (std::size_t i = 0; i < single_.size(); ++i) {
      std::string piece;
      append_utf8(piece, options_.byte_level ? byte_to_char(static_cast<unsigned char>(i))
                                             : static_cast<char32_t>(i));
      single_[i] = vocabulary().id_of(piece).value_or(kMissing);
    }
  }

  Status encode(std::string_view piece, std::vector<TokenId>& out) const override {
    if (options_.ignore_merges) {
      const auto whole = options_.byte_level ? vocabulary().id_in_text(to_byte_alphabet(piece))
                                             : vocabulary().id_in_text(piece);
      if (whole) {
        out.push_back(*whole);
        return {};
      }
    }
    // Ordinary words fit on the stack; a symbol takes at least one byte of the piece.
    std::array<TokenId, 64> small;
    std::vector<TokenId> large(piece.size() > small.size() ? piece.size() : 0);
    const std::span<TokenId> room = large.empty() ? std::span<TokenId>(small) : large;
    const std::size_t count = options_.byte_level ? bytes_of(piece, room) : chars_of(piece, room);
    merges_.apply(room.first(count), out);
    return {};
  }

 private:
  /// Bytes without a piece are dropped, as there is nothing to say for them.
  std::size_t bytes_of(std::string_view piece, std::span<TokenId> symbols) const {
    std::size_t count = 0;
    for (const char byte : piece) {
      const TokenId id = single_[static_cast<unsigned char>(byte)];
      if (id != kMissing) {
        symbols[count++] = id;
      } else if (unk_ != kMissing &&
                 !(options_.fuse_unk && count > 0 && symbols[count - 1] == unk_)) {
        symbols[count++] = unk_;
      }
    }
    return count;
  }

  std::size_t chars_of(std::string_view piece, std::span<TokenId> symbols) const {
    std::size_t count = 0;
    bool unk_pending = false;
    for (std::size_t at = 0; at < piece.size();) {
      const Utf8Char c = read_utf8(piece.substr(at));
      const std::string_view bytes = piece.substr(at, c.length);
      const bool first = at == 0;
      at += c.length;
      const TokenId id =
          decorated_ ? decorated_id(bytes, first, at == piece.size()) : plain_id(bytes, c.code);
      if (id != kMissing) {
        if (std::exchange(unk_pending, false)) symbols[count++] = unk_;
        symbols[count++] = id;
      } else if (falls_back(bytes)) {
        for (const char byte : bytes) {
          symbols[count++] = fallback_[static_cast<unsigned char>(byte)];
        }
      } else if (unk_ != kMissing) {
        if (unk_pending && !options_.fuse_unk) symbols[count++] = unk_;
        unk_pending = true;
      }
    }
    if (unk_pending) symbols[count++] = unk_;
    return count;
  }

  TokenId plain_id(std::string_view bytes, char32_t code) const {
    if (code < single_.size()) return single_[code];
    return vocabulary().id_of(bytes).value_or(kMissing);
  }

  TokenId decorated_id(std::string_view bytes, bool first, bool last) const {
    std::string piece;
    if (!first) piece += options_.continuing_subword_prefix;
    piece += bytes;
    if (last) piece += options_.end_of_word_suffix;
    return vocabulary().id_of(piece).value_or(kMissing);
  }

  bool falls_back(std::string_view bytes) const {
    return !fallback_.empty() && std::all_of(bytes.begin(), bytes.end(), [this](char byte) {
      return fallback_[static_cast<unsigned char>(byte)] != kMissing;
    });
  }

  MergeTable merges_;
  BpeOptions options_;
  TokenId unk_;
  bool decorated_;
  std::vector<TokenId> fallback_;
  std::array<TokenId, 256> single_{};  ///< ids of single bytes, or of the characters below U+0100
};

Result<TokenId> unknown_id(const Vocabulary& vocabulary, const BpeOptions& options) {
  if (!options.unk_token) return kMissing;
  const auto id = vocabulary.id_of(*options.unk_token);
  if (id) return *id;
  return invalid_argument("tokenizer: the unknown token " + *options.unk_token +
                          " is not in the vocabulary");
}

}  // namespace

Result<std::unique_ptr<SubwordModel>> make_bpe(Vocabulary vocabulary,
                                               const std::vector<MergeRule>& merges,
                                               BpeOptions options) {
  const auto unk = unknown_id(vocabulary, options);
  if (!unk.ok()) return unk.status();
  const std::string& prefix = options.continuing_subword_prefix;
  MergeTable table(merges.size());
  std::string joined;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    joined.assign(left);
    joined.append(right, std::min(prefix.size(), right.size()));
    const auto a = vocabulary.id_of(left);
    const auto b = vocabulary.id_of(right);
    const auto ab = vocabulary.id_of(joined);
    if (!a || !b || !ab) {
      return invalid_argument("tokenizer: merge " + std::to_string(rank) + " joins \"" + left +
                              "\" and \"" + right + "\", which the vocabulary does not hold");
    }
    table.add(*a, *b, {.rank = static_cast<std::uint32_t>(rank), .result = *ab});
  }
  return std::unique_ptr<SubwordModel>(
      std::make_unique<Bpe>(std::move(vocabulary), std::move(table), *unk, std::move(options)));
}

Result<std::unique_ptr<SubwordModel>> make_scored_bpe(Vocabulary vocabulary,
                                                      const std::vector<float>& scores,
                                                      const std::vector<bool>& mergeable,
                                                      BpeOptions options) {
  const auto unk = unknown_id(vocabulary, options);
  if (!unk.ok()) return unk.status();
  const auto id_end = static_cast<std::size_t>(vocabulary.id_end());
  require(scores.size() >= id_end && mergeable.size() >= id_end, "a score and a kind for each id");

  std::vector<TokenId> by_score(id_end);
  std::iota(by_score.begin(), by_score.end(), 0);
  std::stable_sort(by_score.begin(), by_score.end(), [&](TokenId a, TokenId b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  const auto takes_part = [&](std::optional<TokenId> id) {
    return id && mergeable[static_cast<std::size_t>(*id)];
  };
  MergeTable table(2 * id_end);
  std::uint32_t rank = 0;
  float rank_score = 0;
  for (const TokenId id : by_score) {
    const auto piece = vocabulary.piece_of(id);
    if (!piece || !takes_part(id) || piece->size() > kMaxPieceBytes) continue;
    // Pieces of equal score share a rank: between them the leftmost pair wins.
    const float score = scores[static_cast<std::size_t>(id)];
    if (score != rank_score) ++rank;
    rank_score = score;
    for (std::size_t cut = 1; cut < piece->size(); ++cut) {
      const auto left = vocabulary.id_of(piece->substr(0, cut));
      if (!takes_part(left)) continue;
      const auto right = vocabulary.id_of(piece->substr(cut));
      if (takes_part(right)) table.add(*left, *right, {.rank = rank, .result = id});
    }
  }
  return std::unique_ptr<SubwordModel>(
      std::make_unique<Bpe>(std::move(vocabulary), std::move(table), *unk, std::move(options)));
}

}  // namespace attune::text
