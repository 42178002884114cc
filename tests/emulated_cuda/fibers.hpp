// Stacks of a block's threads, going from one to another, and the order of those that may.
// boost::context::fiber always returns to its caller; here a warp's lanes hand over to one another,
// at half the switches.
#pragma once

#include <sys/mman.h>

#include <array>
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <new>

namespace attune::emulated {

inline constexpr int kMostThreads = 1024;

/// Where a context that does not run goes on.
using Place = boost::context::detail::fcontext_t;
using Arrival = boost::context::detail::transfer_t;

/// Whoever is gone to keeps the place of whoever left.
inline void keep(const Arrival& from) { *static_cast<Place*>(from.data) = from.fctx; }

/// The running context stays behind at `here`; the one at `there` goes on.
inline void go(Place& here, Place there) {
  keep(boost::context::detail::jump_fcontext(there, &here));
}

/// Mapped once. Where `guarded`, a page that may not be touched lies under each; a process has not
/// enough mappings for all blocks of a grid to have them.
class Stacks {
 public:
  explicit Stacks(bool guarded) {
    void* const all = mmap(nullptr, kMostThreads * kBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<unsigned char*>(all);
    for (int i = 0; guarded && i < kMostThreads; ++i)
      mprotect(base_ + static_cast<std::size_t>(i) * kBytes, kGuardBytes, PROT_NONE);
  }

  /// `begin` is entered at the first visit; it calls keep() and never returns.
  [[nodiscard]] Place fresh(int number, void (*begin)(Arrival)) const {
    unsigned char* const bottom = base_ + static_cast<std::size_t>(number) * kBytes;
    // Tops a power of two apart would share a few sets of the caches: every switch would miss.
    const std::size_t colour = static_cast<std::size_t>(number) * 17 % 1024 * 64;
    return boost::context::detail::make_fcontext(bottom + kBytes - colour,
                                                 kBytes - kGuardBytes - colour, begin);
  }

 private:
  static constexpr std::size_t kBytes = 256 << 10;
  static constexpr std::size_t kGuardBytes = 4096;

  unsigned char* base_ = nullptr;
};

/// Threads that are to go on, in order; each is here at most once.
class Queue {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  void clear() { size_ = 0; }
  void push(int thread) { at(size_++) = thread; }
  int& at(std::uint32_t i) { return threads_[(first_ + i) % kMostThreads]; }
  int pop() {
    const int thread = at(0);
    ++first_;
    --size_;
    return thread;
  }

 private:
  std::array<int, kMostThreads> threads_{};
  std::uint32_t first_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace attune::emulated
