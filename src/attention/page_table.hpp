// Rows of page ids per request become the index arrays of a BatchView (layer attention).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/batch.hpp>

namespace attune::attention {

/// One request of a step. The pages cover at least kv_len tokens; spare ones are left out of the
/// batch, so that a length can never be read off them.
struct PageTableRow {
  std::span<const std::int32_t> pages{};  ///< in order of position
  std::int64_t kv_len = 0;                ///< keys, this step's new tokens included
  std::int64_t qo_len = 0;                ///< query tokens of this step
  std::int64_t kv_offset = 0;             ///< position of the first key of `pages`
};

/// Owns the arrays; refilled each step without giving back memory.
class PageTable {
 public:
  /// Replaces the contents. Refuses lengths that their pages do not cover.
  [[nodiscard]] Status assign(std::span<const PageTableRow> rows, std::int32_t page_size);

  /// A view of the arrays, valid until the next assign.
  [[nodiscard]] BatchView view(BatchForm form) const;

  /// Slots of the last qo_len keys of every request, request by request: where append_kv writes.
  [[nodiscard]] std::span<const std::int64_t> slot_mapping() const { return slot_mapping_; }

 private:
  std::int32_t page_size_ = 1;
  std::vector<std::int32_t> qo_indptr_;
  std::vector<std::int32_t> kv_indptr_;
  std::vector<std::int32_t> kv_indices_;
  std::vector<std::int32_t> kv_last_page_len_;
  std::vector<std::int64_t> kv_offset_;
  std::vector<std::int64_t> slot_mapping_;
};

}  // namespace attune::attention
