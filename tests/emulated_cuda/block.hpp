// A block of threads on one emulated multiprocessor: its fibers, their meetings and barriers, its
// shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fibers.hpp"
#include "machine.hpp"
#include "words.hpp"

namespace attune::emulated {

/// Static and dynamic shared memory together, as on a Hopper card; addresses start here, so that a
/// null address is never a valid one.
inline constexpr std::uint32_t kSharedBase = 1024;
inline constexpr std::size_t kSharedBytes = 227 << 10;

struct Meeting {
  const char* what = nullptr;  ///< null: nobody is here
  int arrived = 0;
  std::array<void*, 128> lanes{};
  std::array<int, 128> threads{};
};

struct Barrier {
  int arrived = 0;
  int expected = 0;
  std::vector<int> waiting;
};

struct Thread {
  /// Whose stack it is on; -1 = not begun. A worker whose thread is through takes the next that has
  /// not begun: threads that never wait share one.
  int worker = -1;
  uint3 index{};
  const char* waits_for = "its first turn";
  bool finished = false;
  ThreadState state;
};

class Block {
 public:
  explicit Block(bool guarded) : stacks_(guarded) {}

  void start(uint3 index, dim3 size, std::size_t dynamic_bytes,
             const std::function<void()>& thread);
  /// Runs until every thread waits, for others or for its next turn; whether any ran.
  bool turn();
  /// Carries out one of the deferred; whether there was one.
  bool deliver_one();
  [[nodiscard]] bool ended() const { return live_ == 0; }
  [[nodiscard]] const std::optional<std::string>& trapped() const { return trapped_; }
  [[nodiscard]] std::string places() const;

  /// The place where a whole warp meets, or some lanes of it, or a warpgroup.
  Meeting& of_warp(int warp, std::uint32_t mask);
  Meeting& of_warpgroup(int group) { return warpgroups_[static_cast<std::size_t>(group)]; }
  void meet(Meeting& m, int members, int lane, const char* what, void* brought, Together together);
  void barrier(int id, int threads, bool wait);
  void sleep_on(const void* place, const char* what);
  void wake(const void* place);
  void yield();
  void defer(std::function<void()> deliver) { deferred_.push_back(std::move(deliver)); }
  [[nodiscard]] unsigned char* memory() { return memory_ + kSharedBase; }
  [[nodiscard]] const unsigned char* begin() const { return memory_; }
  [[nodiscard]] int current() const { return current_; }
  [[nodiscard]] int size() const { return static_cast<int>(threads_.size()); }
  [[nodiscard]] Thread& thread() { return threads_[static_cast<std::size_t>(current_)]; }
  [[nodiscard]] std::shared_ptr<void>& warpgroup() {
    return states_[static_cast<std::size_t>(current_ / 128)];
  }
  [[noreturn]] void trap(const std::string& what);

 private:
  void suspend(const char* what);
  void ready(int thread) { ready_.push(thread); }
  /// The next thread that is ready becomes the current one.
  void choose();
  /// Leaves for the current thread, or for the scheduler where nobody is ready.
  void hand_over(Place& here);
  static void begin(Arrival from);
  void work(int worker);
  void finish_thread();

  uint3 index_{};
  std::vector<Thread> threads_;
  std::vector<Place> workers_;  ///< kept from block to block
  std::vector<int> idle_;
  const std::function<void()>* body_ = nullptr;
  Place scheduler_ = nullptr;
  Queue ready_;
  std::vector<int> next_turn_;
  int idle_turns_ = 0;  ///< in a row, without a wake
  bool woken_ = false;
  std::array<Meeting, kMostThreads / 32> warps_{};
  std::array<Meeting, kMostThreads / 128> warpgroups_{};
  std::array<std::shared_ptr<void>, kMostThreads / 128> states_;
  std::map<std::uint64_t, Meeting> lanes_;
  std::array<Barrier, 16> barriers_{};
  std::unordered_map<const void*, std::vector<int>> sleepers_;
  std::deque<std::function<void()>> deferred_;
  std::optional<std::string> trapped_;
  int current_ = -1;
  int live_ = 0;
  std::mt19937 random_;
  Stacks stacks_;
  alignas(1024) unsigned char memory_[kSharedBase + kSharedBytes];
};

/// The one whose turn it is.
[[nodiscard]] Block& block();

}  // namespace attune::emulated
