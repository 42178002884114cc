// A constexpr list of small fixed capacity; overflow is a compile error (layer base).
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>

namespace attune {

/// Made once, from a braced list; never changed afterwards.
template <class T, std::size_t Capacity>
class FixedList {
 public:
  constexpr FixedList() = default;
  constexpr FixedList(std::initializer_list<T> items) {
    for (const T& item : items) items_.at(size_++) = item;
  }

  [[nodiscard]] constexpr std::size_t size() const { return size_; }
  [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
  [[nodiscard]] constexpr const T* begin() const { return items_.data(); }
  [[nodiscard]] constexpr const T* end() const { return items_.data() + size_; }
  [[nodiscard]] constexpr const T& operator[](std::size_t i) const { return items_.at(i); }

  [[nodiscard]] constexpr bool contains(const T& wanted) const {
    for (const T& item : *this)
      if (item == wanted) return true;
    return false;
  }

 private:
  std::array<T, Capacity> items_{};
  std::size_t size_ = 0;
};

}  // namespace attune
