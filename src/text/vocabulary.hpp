// Pieces and their ids, in both directions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/token_id.hpp"

namespace attune::text {

/// Above this an id is an error in the file, not a vocabulary.
inline constexpr TokenId kMaxTokenId = (1 << 24) - 1;

/// Longest piece that is matched byte by byte through a trie; keeps hostile files from making
/// every position of a text cost the length of the text.
inline constexpr std::size_t kMaxPieceBytes = 1024;

class Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(std::size_t expected);

  /// Of equal pieces or equal ids the last one added answers. 0 <= id <= kMaxTokenId.
  void add(std::string_view piece, TokenId id);

  /// Keeps a control token out of reach of the text: "</s>" typed by a user is then five
  /// characters.
  void hide(std::string_view piece);

  [[nodiscard]] std::optional<TokenId> id_of(std::string_view piece) const;
  /// As id_of, but blind to hidden pieces.
  [[nodiscard]] std::optional<TokenId> id_in_text(std::string_view piece) const;
  [[nodiscard]] bool is_hidden(TokenId id) const;
  [[nodiscard]] std::optional<std::string_view> piece_of(TokenId id) const;

  /// One more than the largest id.
  [[nodiscard]] TokenId id_end() const { return static_cast<TokenId>(entry_of_id_.size()); }
  /// Number of distinct pieces.
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::size_t offset;
    std::uint32_t length;
    TokenId id;
    bool hidden = false;
  };
  [[nodiscard]] std::string_view text_of(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.offset, entry.length);
  }
  [[nodiscard]] std::size_t slot_of(std::string_view piece) const;
  void rehash(std::size_t slots);

  static constexpr std::uint32_t kFree = ~std::uint32_t{0};
  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> entry_of_id_;
  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(16, kFree);
};

}  // namespace attune::text
