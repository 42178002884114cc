// What plan() must know of every request and page id, read once (layer attention). A step plans
// before it runs, so these are its first microseconds: no branch an element, no error texts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include <attune/batch.hpp>

namespace attune::attention {

struct RowScan {
  bool sound = false;  ///< nothing for validate_batch's checks of rows and of the form to find
  std::int64_t max_qo_len = 0;
  std::int64_t max_kv_len = 0;
};

/// Of a batch whose kv_indptr is as long as its qo_indptr, which is not empty.
[[nodiscard]] inline RowScan scan_rows(const BatchView& batch) {
  const auto n = static_cast<std::size_t>(batch.batch_size());
  const bool paged = batch.source == KvSource::paged;
  if (paged && batch.kv_last_page_len.size() != n) return {};
  const std::int64_t most_qo = batch.form == BatchForm::decode ? 1
                               : batch.form == BatchForm::idle
                                   ? 0
                                   : std::numeric_limits<std::int32_t>::max();
  const std::int64_t least_qo = batch.form == BatchForm::decode ? 1 : 0;
  RowScan scan;
  bool wrong = batch.qo_indptr[0] != 0 || batch.kv_indptr[0] != 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t rows = std::int64_t{batch.qo_indptr[i + 1]} - batch.qo_indptr[i];
    const std::int64_t entries = std::int64_t{batch.kv_indptr[i + 1]} - batch.kv_indptr[i];
    wrong |= rows < least_qo || rows > most_qo || entries < 0;
    std::int64_t keys = entries;
    if (paged) {
      const std::int64_t last = batch.kv_last_page_len[i];
      wrong |= last < (entries == 0 ? 0 : 1) || last > (entries == 0 ? 0 : batch.page_size);
      keys = (entries - (entries == 0 ? 0 : 1)) * batch.page_size + last;
    }
    scan.max_qo_len = std::max(scan.max_qo_len, rows);
    scan.max_kv_len = std::max(scan.max_kv_len, keys);
  }
  scan.sound = !wrong;
  return scan;
}

struct PageScan {
  bool any_negative = false;
  std::int32_t largest = -1;  ///< -1: no page
};

/// Many maxima side by side: one alone would wait for itself at every id.
[[nodiscard]] inline PageScan scan_pages(std::span<const std::int32_t> pages) {
  constexpr std::size_t kLanes = 16;
  std::array<std::int32_t, kLanes> largest;
  std::array<std::int32_t, kLanes> signs{};
  largest.fill(-1);
  std::size_t at = 0;
  for (; at + kLanes <= pages.size(); at += kLanes)
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::int32_t page = pages[at + i];
      signs[i] |= page;
      largest[i] = largest[i] < page ? page : largest[i];
    }
  PageScan scan;
  std::int32_t sign = 0;
  for (std::size_t i = 0; i < kLanes; ++i) {
    sign |= signs[i];
    scan.largest = std::max(scan.largest, largest[i]);
  }
  for (; at < pages.size(); ++at) {
    sign |= pages[at];
    scan.largest = std::max(scan.largest, pages[at]);
  }
  scan.any_negative = sign < 0;
  return scan;
}

}  // namespace attune::attention
