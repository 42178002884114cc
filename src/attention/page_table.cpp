#include "attention/page_table.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/join.hpp"
#include "base/math.hpp"

namespace attune::attention {

Status PageTable::assign(std::span<const PageTableRow> rows, std::int32_t page_size) {
  using base::join;
  if (page_size < 1) return invalid_argument(join("page_size must be positive, have ", page_size));
  page_size_ = page_size;
  qo_indptr_.assign(1, 0);
  kv_indptr_.assign(1, 0);
  kv_indices_.clear();
  kv_last_page_len_.clear();
  kv_offset_.clear();
  slot_mapping_.clear();

  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  bool any_offset = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PageTableRow& row = rows[i];
    const auto room = static_cast<std::int64_t>(row.pages.size()) * page_size;
    if (row.kv_len < 0 || row.qo_len < 0 || row.kv_len > room)
      return invalid_argument(join("request ", i, ": ", row.kv_len, " keys and ", row.qo_len,
                                   " queries do not fit ", row.pages.size(), " pages of ",
                                   page_size));
    const std::int64_t pages = base::ceil_div<std::int64_t>(row.kv_len, page_size);
    if (qo_indptr_.back() + row.qo_len > kMost || kv_indptr_.back() + pages > kMost)
      return invalid_argument("the batch exceeds 2^31 tokens or pages: cut it");
    qo_indptr_.push_back(static_cast<std::int32_t>(qo_indptr_.back() + row.qo_len));
    kv_indptr_.push_back(static_cast<std::int32_t>(kv_indptr_.back() + pages));
    kv_indices_.insert(kv_indices_.end(), row.pages.begin(), row.pages.begin() + pages);
    kv_last_page_len_.push_back(
        pages == 0 ? 0 : static_cast<std::int32_t>(row.kv_len - (pages - 1) * page_size));
    kv_offset_.push_back(row.kv_offset);
    any_offset = any_offset || row.kv_offset != 0;
    // Queries without a key of their own (qo_len > kv_len) have nowhere to write.
    for (std::int64_t r = 0; r < row.qo_len; ++r) {
      const std::int64_t j = row.kv_len - row.qo_len + r;
      slot_mapping_.push_back(
          j < 0 ? -1
                : std::int64_t{row.pages[static_cast<std::size_t>(j / page_size)]} * page_size +
                      j % page_size);
    }
  }
  if (!any_offset) kv_offset_.clear();
  return {};
}

BatchView PageTable::view(BatchForm form) const {
  return {.form = form,
          .source = KvSource::paged,
          .page_size = page_size_,
          .qo_indptr = qo_indptr_,
          .kv_indptr = kv_indptr_,
          .kv_indices = kv_indices_,
          .kv_last_page_len = kv_last_page_len_,
          .kv_offset = kv_offset_};
}

}  // namespace attune::attention
