// kernels/ptx/bulk.cuh in plain C++.
#pragma once

#include <cstring>

#include "kernels/ptx/tma.cuh"

namespace attune::kernels::ptx {

inline void bulk_load(void* to, const void* from, std::uint32_t bytes, Mbarrier& done,
                      CacheHint = CacheHint::evict_normal) {
  const auto deliver = [to, from, bytes, &done] {
    std::memcpy(to, from, bytes);
    mbarrier_word::take(done, 0, static_cast<std::int32_t>(bytes));
  };
  if (emulated::rules().delivery == emulated::Delivery::early)
    deliver();
  else
    emulated::defer(deliver);
}

inline void bulk_store(void* to, const void* from, std::uint32_t bytes) {
  (void)emulated::shared_address(from);
  const auto store = [to, from, bytes] { std::memcpy(to, from, bytes); };
  if (emulated::rules().delivery == emulated::Delivery::early)
    store();
  else
    boxes::pending()->push_back(store);
}

inline void fence_proxy_async_global() {}

}  // namespace attune::kernels::ptx
