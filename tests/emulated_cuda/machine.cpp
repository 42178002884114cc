#include "machine.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fibers.hpp"
#include "words.hpp"

uint3 threadIdx{};
uint3 blockIdx{};
dim3 blockDim{};
dim3 gridDim{};

namespace attune::emulated {
namespace {

/// Static and dynamic shared memory together, as on a Hopper card; addresses start here, so that a
/// null address is never a valid one.
constexpr std::uint32_t kSharedBase = 1024;
constexpr std::size_t kSharedBytes = 227 << 10;

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
Block* running = nullptr;
Block& block() { return *running; }

/// The n-th of those that run side by side.
Block& nth_block(std::size_t n) {
  static std::vector<std::unique_ptr<Block>> all;
  while (all.size() <= n) all.push_back(std::make_unique<Block>(all.empty()));
  return *all[n];
}

void Block::start(uint3 index, dim3 size, std::size_t dynamic_bytes,
                  const std::function<void()>& thread) {
  if (dynamic_bytes > kSharedBytes) throw Trap("a block asks for more shared memory than there is");
  const int count = static_cast<int>(size.x * size.y * size.z);
  if (count > kMostThreads) throw Trap("a block of more than 1024 threads");
  // All ones: NaN in every floating type, so that reading what nobody wrote shows.
  std::memset(memory(), 0xFF, dynamic_bytes);
  index_ = index;
  if (live_ > 0) {
    // The last block trapped: who stands in its kernel never comes out of it.
    workers_.clear();
    idle_.clear();
  }
  trapped_.reset();
  ready_.clear();
  next_turn_.clear();
  for (Meeting& m : warps_) m.what = nullptr;
  for (Meeting& m : warpgroups_) m.what = nullptr;
  states_ = {};
  lanes_.clear();
  barriers_ = {};
  sleepers_.clear();
  deferred_.clear();
  random_.seed(rules().seed);
  body_ = &thread;
  threads_.clear();
  threads_.resize(static_cast<std::size_t>(count));
  live_ = count;
  for (int i = 0; i < count; ++i) {
    Thread& t = threads_[static_cast<std::size_t>(i)];
    const auto n = static_cast<unsigned>(i);
    t.index = {n % size.x, n / size.x % size.y, n / (size.x * size.y)};
    ready(i);
  }
}

bool Block::turn() {
  const bool any = !ready_.empty();
  running = this;
  blockIdx = index_;
  while (!ready_.empty() && !trapped_) {
    choose();
    hand_over(scheduler_);
  }
  // Threads that only ask again and again go on as little as those that sleep.
  constexpr int kIdleTurns = 8;
  idle_turns_ = next_turn_.empty() || woken_ ? 0 : idle_turns_ + 1;
  woken_ = false;
  for (const int thread : next_turn_) ready(thread);
  next_turn_.clear();
  if (idle_turns_ >= kIdleTurns) {
    idle_turns_ = 0;
    deliver_one();
  }
  return any;
}

bool Block::deliver_one() {
  if (deferred_.empty()) return false;
  running = this;
  current_ = -1;
  const auto deliver = std::move(deferred_.front());
  deferred_.pop_front();
  deliver();
  return true;
}

void Block::choose() {
  if (rules().seed != 0)
    std::swap(ready_.at(0), ready_.at(static_cast<std::uint32_t>(random_() % ready_.size())));
  current_ = ready_.pop();
  threadIdx = thread().index;
}

void Block::hand_over(Place& here) {
  Thread& t = thread();
  if (t.worker >= 0) return go(here, workers_[static_cast<std::size_t>(t.worker)]);
  if (idle_.empty()) {
    workers_.reserve(kMostThreads);
    idle_.push_back(static_cast<int>(workers_.size()));
    workers_.push_back(stacks_.fresh(idle_.back(), &Block::begin));
  }
  t.worker = idle_.back();
  idle_.pop_back();
  go(here, workers_[static_cast<std::size_t>(t.worker)]);
}

void Block::begin(Arrival from) {
  keep(from);
  block().work(block().thread().worker);
}

void Block::work(int worker) {
  Place& own = workers_[static_cast<std::size_t>(worker)];
  for (;;) {
    (*body_)();
    finish_thread();
    if (!ready_.empty() && !trapped_) {
      choose();
      if (thread().worker < 0) {
        thread().worker = worker;
        continue;
      }
      idle_.push_back(worker);
      hand_over(own);
    } else {
      idle_.push_back(worker);
      go(own, scheduler_);
    }
  }
}

void Block::finish_thread() {
  Thread& t = thread();
  if (t.state.settle) t.state.settle();
  if (t.state.settle_stores) t.state.settle_stores();
  t.finished = true;
  --live_;
  // Threads that have left count as having reached __syncthreads.
  Barrier& whole = barriers_[0];
  if (whole.arrived > 0 && whole.expected == 0 && whole.arrived == live_) {
    whole.arrived = 0;
    for (const int waiter : whole.waiting) ready(waiter);
    whole.waiting.clear();
  }
}

void Block::suspend(const char* what) {
  Thread& t = thread();
  t.waits_for = what;
  Place& here = workers_[static_cast<std::size_t>(t.worker)];
  if (ready_.empty() || trapped_) return go(here, scheduler_);
  const Thread* const before = &t;
  choose();
  if (&thread() != before) hand_over(here);
}

Meeting& Block::of_warp(int warp, std::uint32_t mask) {
  if (mask == 0xffffffffu) return warps_[static_cast<std::size_t>(warp)];
  return lanes_[std::uint64_t{mask} << 32 | static_cast<unsigned>(warp)];
}

void Block::meet(Meeting& m, int members, int lane, const char* what, void* brought,
                 Together together) {
  if (m.what == nullptr) {
    m.what = what;
    m.arrived = 0;
    if (members < 32) m.lanes.fill(nullptr);
  } else if (m.what != what && std::strcmp(m.what, what) != 0) {
    trap(std::string("threads that should act as one are at ") + m.what + " and at " + what);
  }
  m.lanes[static_cast<std::size_t>(lane)] = brought;
  m.threads[static_cast<std::size_t>(m.arrived++)] = current_;
  if (m.arrived < members) {
    suspend(what);
    return;
  }
  together(m.lanes.data());
  for (int i = 0; i < members - 1; ++i) ready(m.threads[static_cast<std::size_t>(i)]);
  m.what = nullptr;
}

void Block::barrier(int id, int threads, bool wait) {
  Barrier& b = barriers_[static_cast<std::size_t>(id)];
  if (b.arrived > 0 && b.expected != threads)
    trap("barrier " + std::to_string(id) + " is used with " + std::to_string(b.expected) +
         " and with " + std::to_string(threads) + " threads");
  b.expected = threads;
  ++b.arrived;
  if (b.arrived == (threads == 0 ? live_ : threads)) {
    b.arrived = 0;
    for (const int waiter : b.waiting) ready(waiter);
    b.waiting.clear();
    return;
  }
  if (!wait) return;
  b.waiting.push_back(current_);
  suspend(id == 0 ? "__syncthreads" : "a named barrier");
}

void Block::sleep_on(const void* place, const char* what) {
  sleepers_[place].push_back(current_);
  suspend(what);
}

void Block::wake(const void* place) {
  woken_ = true;
  const auto found = sleepers_.find(place);
  if (found == sleepers_.end()) return;
  for (const int thread : found->second) ready(thread);
  sleepers_.erase(found);
}

void Block::yield() {
  next_turn_.push_back(current_);
  suspend("its next turn");
}

void Block::trap(const std::string& what) {
  if (current_ < 0) throw Trap(what + " (by a late delivery)");
  trapped_ = what + " (thread " + std::to_string(current_) + ")";
  // The scheduler sees it and never comes back.
  for (;;) suspend("nothing: it trapped");
}

std::string Block::places() const {
  std::map<std::string, std::vector<int>> by_place;
  for (std::size_t i = 0; i < threads_.size(); ++i)
    if (!threads_[i].finished) by_place[threads_[i].waits_for].push_back(static_cast<int>(i));
  std::string text;
  for (const auto& [place, who] : by_place) {
    text += (text.empty() ? "" : "; ") + std::to_string(who.size()) + " threads wait for " + place +
            " (from " + std::to_string(who.front()) + " to " + std::to_string(who.back()) + ")";
  }
  return text;
}

void run_blocks(const std::vector<Block*>& blocks) {
  for (;;) {
    bool any = false;
    for (Block* const b : blocks) {
      any |= b->turn();
      if (b->trapped()) throw Trap(*b->trapped());
    }
    if (any) continue;
    // What is left when all have ended is delivered as well.
    for (Block* const b : blocks)
      if (!any) any = b->deliver_one();
    if (any) continue;
    std::string places;
    for (Block* const b : blocks)
      if (!b->ended()) places += (places.empty() ? "" : "; ") + b->places();
    if (places.empty()) return;
    throw Trap("deadlock: " + places);
  }
}

}  // namespace

Rules& rules() {
  static Rules the_rules = [] {
    Rules from_environment;
    if (const char* delivery = std::getenv("ATTUNE_EMULATED_DELIVERY"))
      from_environment.delivery =
          std::strcmp(delivery, "late") == 0 ? Delivery::late : Delivery::early;
    if (const char* seed = std::getenv("ATTUNE_EMULATED_SEED"))
      from_environment.seed = static_cast<std::uint32_t>(std::strtoul(seed, nullptr, 10));
    return from_environment;
  }();
  return the_rules;
}

void run_grid(dim3 grid, dim3 size, std::size_t dynamic_shared_bytes,
              const std::function<void()>& thread, bool side_by_side) {
  static std::mutex one_launch;
  const std::lock_guard lock(one_launch);
  gridDim = grid;
  blockDim = size;
  std::vector<Block*> blocks;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blocks.push_back(&nth_block(blocks.size()));
        blocks.back()->start({x, y, z}, size, dynamic_shared_bytes, thread);
        if (side_by_side) continue;
        run_blocks(blocks);
        blocks.clear();
      }
  if (!blocks.empty()) run_blocks(blocks);
}

void meet_warp(std::uint32_t mask, const char* what, void* lane, Together together) {
  const int warp = block().current() / 32;
  const int own = block().current() % 32;
  if ((mask >> own & 1) == 0) trap(std::string(what) + ": the mask leaves out its own caller");
  block().meet(block().of_warp(warp, mask), __builtin_popcount(mask), own, what, lane, together);
}

void meet_warpgroup(const char* what, void* lane, Together together) {
  const int thread = block().current();
  block().meet(block().of_warpgroup(thread / 128), 128, thread % 128, what, lane, together);
}

void barrier_sync(int id, int threads) { block().barrier(id, threads, true); }
void barrier_arrive(int id, int threads) { block().barrier(id, threads, false); }
void sleep_on(const void* place, const char* what) { block().sleep_on(place, what); }
void wake(const void* place) { block().wake(place); }
void yield() { block().yield(); }
void defer(std::function<void()> deliver) { block().defer(std::move(deliver)); }
unsigned char* shared_memory() { return block().memory(); }
int current_thread() { return block().current(); }
int num_threads() { return block().size(); }
void trap(const std::string& what) { block().trap(what); }
ThreadState& thread_state() { return block().thread().state; }
std::shared_ptr<void>& warpgroup_state() { return block().warpgroup(); }

std::uint32_t shared_address(const void* p) {
  const auto offset = static_cast<const unsigned char*>(p) - block().begin();
  if (offset < static_cast<std::ptrdiff_t>(kSharedBase) ||
      offset > static_cast<std::ptrdiff_t>(kSharedBase + kSharedBytes))
    trap("an address outside the block's dynamic shared memory is used as a shared one");
  return static_cast<std::uint32_t>(offset);
}

unsigned char* shared_pointer(std::uint32_t address) {
  if (address < kSharedBase || address >= kSharedBase + kSharedBytes)
    trap("shared address " + std::to_string(address) + " is outside the block's memory");
  return block().memory() + (address - kSharedBase);
}

}  // namespace attune::emulated
