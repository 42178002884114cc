#include "block.hpp"

#include <cstring>

uint3 threadIdx{};
uint3 blockIdx{};

namespace attune::emulated {
namespace {

Block* running = nullptr;

}  // namespace

Block& block() { return *running; }

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

}  // namespace attune::emulated
