// kernels/ptx/tma.cuh in plain C++.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/ptx/mbarrier.cuh"
#include "machine.hpp"
#include "tensor_map.hpp"

namespace attune::kernels::ptx {

enum class CacheHint : std::uint64_t { evict_normal, evict_first, evict_last };

inline void tma_prefetch(const CUtensorMap&) {}

namespace boxes {

template <std::size_t Rank>
void load(void* to, const CUtensorMap& map, Mbarrier& done, std::array<std::int32_t, Rank> at) {
  const auto& m = emulated::TensorMap::of(map);
  const std::uint32_t address = emulated::shared_address(to);
  const auto bytes = static_cast<std::int32_t>(m.box_bytes());
  const auto deliver = [m, address, at, bytes, &done] {
    m.read_box(address, at.data(), Rank);
    mbarrier_word::take(done, 0, bytes);
  };
  if (emulated::rules().delivery == emulated::Delivery::early)
    deliver();
  else
    emulated::defer(deliver);
}

/// Stores of a thread that it has not waited for.
inline std::shared_ptr<std::vector<std::function<void()>>> pending() {
  emulated::ThreadState& state = emulated::thread_state();
  if (!state.stores) {
    const auto made = std::make_shared<std::vector<std::function<void()>>>();
    state.stores = made;
    state.settle_stores = [made] {
      for (const auto& store : *made) store();
      made->clear();
    };
  }
  return std::static_pointer_cast<std::vector<std::function<void()>>>(state.stores);
}

}  // namespace boxes

inline void tma_load(void* to, const CUtensorMap& map, Mbarrier& done, CacheHint, std::int32_t c0,
                     std::int32_t c1, std::int32_t c2) {
  boxes::load<3>(to, map, done, {c0, c1, c2});
}
inline void tma_load(void* to, const CUtensorMap& map, Mbarrier& done, CacheHint, std::int32_t c0,
                     std::int32_t c1, std::int32_t c2, std::int32_t c3) {
  boxes::load<4>(to, map, done, {c0, c1, c2, c3});
}

inline void bulk_prefetch(const void*, std::int64_t) {}

inline void tma_store(const CUtensorMap& map, const void* from, std::int32_t c0, std::int32_t c1,
                      std::int32_t c2) {
  const auto& m = emulated::TensorMap::of(map);
  const std::uint32_t address = emulated::shared_address(from);
  const auto store = [m, address, c0, c1, c2] {
    const std::int32_t at[3] = {c0, c1, c2};
    m.write_box(address, at, 3);
  };
  if (emulated::rules().delivery == emulated::Delivery::early)
    store();
  else
    boxes::pending()->push_back(store);
}
inline void bulk_commit() {}
/// One store a commit.
template <int Pending = 0>
void bulk_wait_read() {
  const auto mine = boxes::pending();
  while (mine->size() > Pending) {
    mine->front()();
    mine->erase(mine->begin());
  }
}
inline void fence_proxy_async() {}

}  // namespace attune::kernels::ptx
