#include "text/vocabulary.hpp"

#include <functional>

namespace attune::text {

Vocabulary::Vocabulary(std::size_t expected) {
  entries_.reserve(expected);
  entry_of_id_.reserve(expected);
  std::size_t slots = 16;
  while (slots < 2 * expected) slots *= 2;
  rehash(slots);
}

void Vocabulary::add(std::string_view piece, TokenId id) {
  if (2 * (entries_.size() + 1) > slots_.size()) rehash(2 * slots_.size());
  std::uint32_t& slot = slots_[slot_of(piece)];
  if (slot == kFree) {
    slot = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({bytes_.size(), static_cast<std::uint32_t>(piece.size()), id, false});
    bytes_.append(piece);
  }
  entries_[slot].id = id;
  const auto index = static_cast<std::size_t>(id);
  if (index >= entry_of_id_.size()) entry_of_id_.resize(index + 1, kFree);
  entry_of_id_[index] = slot;
}

std::optional<TokenId> Vocabulary::id_of(std::string_view piece) const {
  const std::uint32_t entry = slots_[slot_of(piece)];
  if (entry == kFree) return std::nullopt;
  return entries_[entry].id;
}

std::optional<TokenId> Vocabulary::id_in_text(std::string_view piece) const {
  const std::uint32_t entry = slots_[slot_of(piece)];
  if (entry == kFree || entries_[entry].hidden) return std::nullopt;
  return entries_[entry].id;
}

void Vocabulary::hide(std::string_view piece) {
  const std::uint32_t entry = slots_[slot_of(piece)];
  if (entry != kFree) entries_[entry].hidden = true;
}

bool Vocabulary::is_hidden(TokenId id) const {
  if (id < 0 || id >= id_end()) return false;
  const std::uint32_t entry = entry_of_id_[static_cast<std::size_t>(id)];
  return entry != kFree && entries_[entry].hidden;
}

std::optional<std::string_view> Vocabulary::piece_of(TokenId id) const {
  if (id < 0 || id >= id_end()) return std::nullopt;
  const std::uint32_t entry = entry_of_id_[static_cast<std::size_t>(id)];
  if (entry == kFree) return std::nullopt;
  return text_of(entries_[entry]);
}

std::size_t Vocabulary::slot_of(std::string_view piece) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = std::hash<std::string_view>{}(piece)&mask;
  while (slots_[i] != kFree && text_of(entries_[slots_[i]]) != piece) i = (i + 1) & mask;
  return i;
}

void Vocabulary::rehash(std::size_t slots) {
  slots_.assign(slots, kFree);
  for (std::uint32_t entry = 0; entry < entries_.size(); ++entry) {
    slots_[slot_of(text_of(entries_[entry]))] = entry;
  }
}

}  // namespace attune::text
