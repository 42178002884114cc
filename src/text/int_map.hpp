// A flat hash map from 64-bit keys to small values: the merge table, the character table and the
// edges of the tries. Open addressing, linear probing, no removal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attune::text {

template <class Value>
class IntMap {
 public:
  explicit IntMap(std::size_t expected = 0) { rehash(slots_for(expected)); }

  [[nodiscard]] std::size_t size() const { return size_; }

  /// The value under `key`, or nullptr.
  [[nodiscard]] const Value* find(std::uint64_t key) const {
    for (std::size_t i = home(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kFree) return nullptr;
    }
  }

  /// Inserts, or leaves the value already there; returns what is stored. `key` is not 2^64 - 1.
  Value& insert(std::uint64_t key, Value value) {
    if (2 * (size_ + 1) > slots_.size()) rehash(2 * slots_.size());
    Slot& slot = slot_of(key);
    if (slot.key == kFree) {
      slot = {key, value};
      ++size_;
    }
    return slot.value;
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    Value value{};
  };

  static std::size_t slots_for(std::size_t expected) {
    std::size_t count = 16;
    while (count < 2 * expected) count *= 2;
    return count;
  }

  [[nodiscard]] std::size_t home(std::uint64_t key) const {
    // Fibonacci hashing (Knuth, TAOCP 6.4): the high bits of a product with 2^64 / golden ratio.
    const std::uint64_t folded = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(folded >> 32) & mask_;
  }

  Slot& slot_of(std::uint64_t key) {
    std::size_t i = home(key);
    while (slots_[i].key != key && slots_[i].key != kFree) i = (i + 1) & mask_;
    return slots_[i];
  }

  void rehash(std::size_t count) {
    std::vector<Slot> old(count);
    old.swap(slots_);
    mask_ = count - 1;
    for (const Slot& slot : old) {
      if (slot.key != kFree) slot_of(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  std::size_t size_ = 0;
};

}  // namespace attune::text
