#include "device/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <system_error>

#include "device/numa.hpp"

namespace attune::device {
namespace {

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Returns once `word` differs from `seen`: spins first, then sleeps in the kernel.
void wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t seen, int spin_rounds) {
  for (int i = 0; i < spin_rounds; ++i) {
    if (word.load(std::memory_order_acquire) != seen) return;
    pause_briefly();
  }
  word.wait(seen, std::memory_order_acquire);
}

/// The cores this process may use, node after node: few threads share one memory.
std::vector<int> cores_by_node() {
  std::vector<int> cores;
  for (const NumaNode& node : numa_nodes())
    cores.insert(cores.end(), node.cores.begin(), node.cores.end());
  return cores;
}

void pin(std::thread& thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  // A refused binding costs speed, not correctness.
  static_cast<void>(pthread_setaffinity_np(thread.native_handle(), sizeof set, &set));
}

}  // namespace

// A thread that wanders to another node leaves its caches and half of its bandwidth behind. On one
// node the system places threads better than we do when programs share the cores.
Result<std::unique_ptr<ThreadPool>> ThreadPool::for_model(int num_threads) {
  return make({.num_threads = num_threads, .pinned = numa_nodes().size() > 1});
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::make(const ThreadPoolOptions& options) {
  if (options.num_threads < 1)
    return invalid_argument("a thread pool needs at least 1 thread, asked for " +
                            std::to_string(options.num_threads));
  std::unique_ptr<ThreadPool> pool(new ThreadPool(options));
  const std::vector<int> cores = options.pinned ? cores_by_node() : std::vector<int>{};
  for (int t = 1; t < options.num_threads; ++t) {
    try {
      pool->workers_.emplace_back(&ThreadPool::work, pool.get(), t);
    } catch (const std::system_error& e) {
      return Status(StatusCode::out_of_memory, "thread " + std::to_string(t) + " of " +
                                                   std::to_string(options.num_threads) +
                                                   " could not start: " + e.what());
    }
    if (!cores.empty())
      pin(pool->workers_.back(), cores[static_cast<std::size_t>(t) % cores.size()]);
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  runs_started_.fetch_add(1, std::memory_order_release);
  runs_started_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t num_items, void (*body)(void*, std::int64_t, int),
                     void* context) {
  if (num_items <= 0) return;
  const std::lock_guard<std::mutex> lock(one_run_at_a_time_);
  if (workers_.empty() || num_items == 1) {
    for (std::int64_t item = 0; item < num_items; ++item) body(context, item, 0);
    return;
  }
  body_ = body;
  context_ = context;
  num_items_ = num_items;
  const std::uint32_t finished_before = runs_finished_.load(std::memory_order_relaxed);
  unfinished_.store(num_items, std::memory_order_relaxed);
  unclaimed_.store(num_items, std::memory_order_release);
  runs_started_.fetch_add(1, std::memory_order_release);
  runs_started_.notify_all();
  claim_items(0);
  wait_for_change(runs_finished_, finished_before, options_.spin_rounds);
}

void ThreadPool::claim_items(int thread) {
  // A worker that wakes late may arrive during a later run: whatever it claims belongs to the run
  // that is current at the claim, and that run's job stays readable until the item is finished.
  std::int64_t left = unclaimed_.load(std::memory_order_acquire);
  while (left > 0) {
    if (!unclaimed_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire))
      continue;
    body_(context_, num_items_ - left, thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      runs_finished_.fetch_add(1, std::memory_order_release);
      runs_finished_.notify_all();
    }
    left = unclaimed_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_for_change(runs_started_, seen, options_.spin_rounds);
    seen = runs_started_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    claim_items(thread);
  }
}

}  // namespace attune::device

namespace attune {

Result<std::unique_ptr<Executor>> make_thread_pool(int num_threads) {
  Result<std::unique_ptr<device::ThreadPool>> pool =
      device::ThreadPool::make({.num_threads = num_threads});
  if (!pool.ok()) return pool.status();
  return std::unique_ptr<Executor>(std::move(*pool));
}

}  // namespace attune
