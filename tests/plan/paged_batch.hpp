// A paged batch made of its requests' lengths, with the arrays that its view points into.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <attune/batch.hpp>

#include "base/math.hpp"

namespace attune::plan {

struct PagedBatch {
  using Ints = std::vector<std::int32_t>;

  /// Of pairs (qo_len, kv_len). Page p of request i has the id i * ids_apart + p.
  PagedBatch(BatchForm form, std::int32_t page_size,
             const std::vector<std::pair<std::int32_t, std::int32_t>>& requests,
             std::int32_t ids_apart) {
    std::int32_t first_id = 0;
    for (const auto& [qo_len, kv_len] : requests) {
      qo_indptr.push_back(qo_indptr.back() + qo_len);
      const std::int32_t pages = base::ceil_div(kv_len, page_size);
      kv_indptr.push_back(kv_indptr.back() + pages);
      for (std::int32_t p = 0; p < pages; ++p) kv_indices.push_back(first_id + p);
      kv_last_page_len.push_back(pages == 0 ? 0 : kv_len - (pages - 1) * page_size);
      first_id += ids_apart;
    }
    view = {.form = form,
            .page_size = page_size,
            .qo_indptr = qo_indptr,
            .kv_indptr = kv_indptr,
            .kv_indices = kv_indices,
            .kv_last_page_len = kv_last_page_len};
  }
  PagedBatch(const PagedBatch&) = delete;
  PagedBatch& operator=(const PagedBatch&) = delete;

  Ints qo_indptr{0}, kv_indptr{0}, kv_indices, kv_last_page_len;
  BatchView view;
};

/// Requests of these lengths, `qo_len` query tokens each.
[[nodiscard]] inline std::vector<std::pair<std::int32_t, std::int32_t>> each_with(
    std::int32_t qo_len, const std::vector<std::int32_t>& kv_lens) {
  std::vector<std::pair<std::int32_t, std::int32_t>> requests;
  for (const std::int32_t kv_len : kv_lens) requests.emplace_back(qo_len, kv_len);
  return requests;
}

}  // namespace attune::plan
