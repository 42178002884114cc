// What backends that share one cache agree on: page sizes and KV layouts (layer registry).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <attune/descriptor.hpp>

namespace attune::registry {

/// A set of page sizes with a preferred order.
class PageSizes {
 public:
  PageSizes() = default;  ///< every size, no wish
  /// Of all rows together; the first one's wish.
  explicit PageSizes(const std::vector<const Capability*>& rows);
  explicit PageSizes(std::int32_t only) : any_(false), sizes_{only}, preferred_(only) {}

  [[nodiscard]] bool empty() const { return !any_ && sizes_.empty(); }
  [[nodiscard]] bool contains(std::int32_t size) const;
  /// Sizes of both; the order and the wish of *this, unless only `other` has any.
  [[nodiscard]] PageSizes intersect(const PageSizes& other) const;
  [[nodiscard]] std::int32_t preferred() const { return preferred_; }
  /// Takes `size` as the wish where it is in the set.
  void prefer(std::int32_t size);
  [[nodiscard]] std::string text() const;

 private:
  bool any_ = true;
  std::vector<std::int32_t> sizes_;
  std::int32_t preferred_ = 0;  ///< 0 = no wish
};

/// The first layout of `a` that `b` reads too.
[[nodiscard]] std::optional<KvLayout> shared_layout(const Capability& a, const Capability& b);

}  // namespace attune::registry
