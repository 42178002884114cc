// WorkspaceImage: the lists of a plan as its workspace is to hold them, made on the host and sent
// to the device by one copy (layer plan).
//
//   image.clear();
//   image.cover(parts.work, parts.kv_indices + num_entries);
//   image.put(parts.items, list.items);
//   copy_to_device(image.place(), image.data(), image.bytes(), stream, what);
#pragma once

#include <cstddef>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <vector>

namespace attune::plan {

class WorkspaceImage {
 public:
  /// Makes all bytes zero: for lists with counters between them. Their memory is kept.
  void clear() { bytes_.clear(); }

  /// The workspace's bytes from `begin` up to `end`. Those that nothing is put on are zero or, if the
  /// image was not cleared, whatever they were.
  void cover(void* begin, const void* end) {
    begin_ = static_cast<std::byte*>(begin);
    bytes_.resize(offset(end));
  }

  /// A list to its place, which is covered. `values` has its elements one behind the other.
  template <class T, class Values>
  void put(const T* part, const Values& values) {
    static_assert(std::is_same_v<T, std::remove_cvref_t<decltype(*std::data(values))>>);
    static_assert(std::is_trivially_copyable_v<T>);
    if (std::size(values) > 0)
      std::memcpy(bytes_.data() + offset(part), std::data(values), std::size(values) * sizeof(T));
  }
  template <class T>
  void put_one(const T* part, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(bytes_.data() + offset(part), &value, sizeof(T));
  }

  /// Where the copy goes.
  [[nodiscard]] void* place() const { return begin_; }
  [[nodiscard]] const std::byte* data() const { return bytes_.data(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_.size(); }

 private:
  [[nodiscard]] std::size_t offset(const void* part) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(part) - begin_);
  }

  std::byte* begin_ = nullptr;
  std::vector<std::byte> bytes_;
};

}  // namespace attune::plan
