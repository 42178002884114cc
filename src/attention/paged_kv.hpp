// The plain struct kernels receive for keys and values (layer attention; docs/architecture.md lists
// the headers of it that a kernel may include). Usable from CUDA: no standard library beyond
// fixed-width integers.
#pragma once

#include <cstdint>

namespace attune::attention {

/// Paged keys and values. Element (page, token, head, d) of K sits at
///   k + page * k_page_stride + token * k_token_stride + head * k_head_stride + d      (strides in
///   elements)
/// which covers NHD and HND alike. Ragged keys are one "page" per token: page_size 1, indices ==
/// nullptr.
struct PagedKv {
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t k_page_stride = 0;
  std::int64_t k_token_stride = 0;
  std::int64_t k_head_stride = 0;
  std::int64_t v_page_stride = 0;
  std::int64_t v_token_stride = 0;
  std::int64_t v_head_stride = 0;
  const std::int32_t* indptr = nullptr;   ///< [batch + 1] into indices (ragged: token numbers)
  const std::int32_t* indices = nullptr;  ///< page ids; nullptr = ragged, the page of entry e is e
  std::int32_t page_size = 1;
};

}  // namespace attune::attention
