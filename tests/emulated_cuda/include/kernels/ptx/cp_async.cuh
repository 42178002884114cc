// kernels/ptx/cp_async.cuh in plain C++.
#pragma once

#include <algorithm>
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

inline void carry_out(const Copy& c) {
  if (c.valid)
    std::memcpy(c.to, c.from, 16);
  else
    std::memset(c.to, 0, 16);
}
inline void carry_out(const std::vector<Copy>& group) {
  for (const Copy& c : group) carry_out(c);
}
/// Two copies of a thread land in either order, so one to a place where another is still under way
/// is a race.
inline bool under_way(const OfThread& mine, const void* to) {
  const auto there = [&](const Copy& c) { return c.to == to; };
  return std::ranges::any_of(mine.open, there) ||
         std::ranges::any_of(mine.groups, [&](const std::vector<Copy>& group) {
           return std::ranges::any_of(group, there);
         });
}
inline void settle(OfThread& mine, std::size_t pending) {
  for (; mine.groups.size() > pending; mine.groups.pop_front()) carry_out(mine.groups.front());
}
inline const std::shared_ptr<void>& kept_of_thread() {
  emulated::ThreadState& state = emulated::thread_state();
  if (!state.copies) {
    const auto made = std::make_shared<OfThread>();
    state.copies = made;
    state.settle = [made] {
      settle(*made, 0);
      carry_out(made->open);
    };
  }
  return state.copies;
}
inline OfThread& of_thread() { return *static_cast<OfThread*>(kept_of_thread().get()); }

}  // namespace copies

inline void cp_async_16(void* to, const void* from, bool valid = true) {
  if ((reinterpret_cast<std::uintptr_t>(to) |
       (valid ? reinterpret_cast<std::uintptr_t>(from) : 0)) %
          16 !=
      0)
    emulated::trap("cp.async: an address is no multiple of 16 bytes");
  (void)emulated::shared_address(to);
  if (emulated::rules().delivery == emulated::Delivery::early) {
    copies::carry_out({to, from, valid});
    return;
  }
  copies::OfThread& mine = copies::of_thread();
  if (copies::under_way(mine, to)) emulated::trap("cp.async: a copy to this place is under way");
  mine.open.push_back({to, from, valid});
}

inline void cp_async_commit() {
  if (emulated::rules().delivery == emulated::Delivery::early) return;
  copies::OfThread& mine = copies::of_thread();
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}

template <int Pending>
void cp_async_wait() {
  if (emulated::rules().delivery == emulated::Delivery::late)
    copies::settle(copies::of_thread(), Pending);
}

inline void cp_async_mbarrier_arrive(Mbarrier& b) {
  if (emulated::rules().delivery == emulated::Delivery::early) {
    mbarrier_word::take(b, 1, 0);
    return;
  }
  const auto mine = std::static_pointer_cast<copies::OfThread>(copies::kept_of_thread());
  emulated::defer([mine, &b] {
    copies::settle(*mine, 0);
    copies::carry_out(mine->open);
    mine->open.clear();
    mbarrier_word::take(b, 1, 0);
  });
}

}  // namespace attune::kernels::ptx
