// kernels/ptx/cp_async.cuh in plain C++.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/ptx/mbarrier.cuh"
#include "machine.hpp"

namespace attune::kernels::ptx {

namespace copies {

struct Copy {
  void* to;
  const void* from;
  bool valid;
};
struct OfThread {
  std::deque<std::vector<Copy>> groups;  ///< committed, oldest first
  std::vector<Copy> open;
};

inline void carry_out(const std::vector<Copy>& group) {
  for (const Copy& c : group) {
    if (c.valid)
      std::memcpy(c.to, c.from, 16);
    else
      std::memset(c.to, 0, 16);
  }
}
inline void settle(OfThread& mine, std::size_t pending) {
  for (; mine.groups.size() > pending; mine.groups.pop_front()) carry_out(mine.groups.front());
}
inline std::shared_ptr<OfThread> of_thread() {
  emulated::ThreadState& state = emulated::thread_state();
  if (!state.copies) {
    const auto made = std::make_shared<OfThread>();
    state.copies = made;
    state.settle = [made] {
      settle(*made, 0);
      carry_out(made->open);
    };
  }
  return std::static_pointer_cast<OfThread>(state.copies);
}

}  // namespace copies

inline void cp_async_16(void* to, const void* from, bool valid = true) {
  if ((reinterpret_cast<std::uintptr_t>(to) |
       (valid ? reinterpret_cast<std::uintptr_t>(from) : 0)) %
          16 !=
      0)
    emulated::trap("cp.async: an address is no multiple of 16 bytes");
  (void)emulated::shared_address(to);
  copies::of_thread()->open.push_back({to, from, valid});
  if (emulated::rules().delivery == emulated::Delivery::early)
    copies::carry_out({copies::of_thread()->open.back()});
}

inline void cp_async_commit() {
  const auto mine = copies::of_thread();
  mine->groups.push_back(std::move(mine->open));
  mine->open.clear();
  if (emulated::rules().delivery == emulated::Delivery::early) mine->groups.back().clear();
}

template <int Pending>
void cp_async_wait() {
  copies::settle(*copies::of_thread(), Pending);
}

inline void cp_async_mbarrier_arrive(Mbarrier& b) {
  const auto mine = copies::of_thread();
  const auto deliver = [mine, &b] {
    copies::settle(*mine, 0);
    copies::carry_out(mine->open);
    mine->open.clear();
    mbarrier_word::take(b, 1, 0);
  };
  if (emulated::rules().delivery == emulated::Delivery::early)
    deliver();
  else
    emulated::defer(deliver);
}

}  // namespace attune::kernels::ptx
