// ThreadPool: an Executor with a fixed set of threads (layer device).
//
// run() neither allocates nor creates threads: the caller works as thread 0 beside num_threads - 1
// workers. Who has nothing left to do spins for a while, because the next run, of merges or of the
// next layer, follows as soon as the slowest thread is done, then sleeps: an idle pool costs nothing.
// A thread that slept starts 20 to 40 us late on a virtual machine (docs/performance/cpu.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

namespace attune::device {

struct ThreadPoolOptions {
  int num_threads = 1;  ///< the caller of run() included
  /// Worker t is bound to the t-th core this process may use, counted node by node; the caller's
  /// own thread is left alone.
  bool pinned = false;
  int spin_rounds = 10000;  ///< pause instructions before sleeping; 0 = sleep at once
};

class ThreadPool final : public Executor {
 public:
  static Result<std::unique_ptr<ThreadPool>> make(const ThreadPoolOptions& options);
  /// Threads of whoever runs a model: pinned where there are several NUMA nodes.
  static Result<std::unique_ptr<ThreadPool>> for_model(int num_threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int num_threads() const override { return options_.num_threads; }

  /// Calls from several threads are served one after the other.
  void run(std::int64_t num_items, void (*body)(void* context, std::int64_t item, int thread),
           void* context) override;

 private:
  explicit ThreadPool(const ThreadPoolOptions& options) : options_(options) {}
  void work(int thread);
  void claim_items(int thread);

  ThreadPoolOptions options_;
  std::vector<std::thread> workers_;
  std::mutex one_run_at_a_time_;

  // The job. A thread reads these only while it holds an unfinished item, which keeps run() from
  // returning and thus from changing them.
  void (*body_)(void*, std::int64_t, int) = nullptr;
  void* context_ = nullptr;
  std::int64_t num_items_ = 0;

  alignas(64) std::atomic<std::int64_t> unclaimed_{0};
  alignas(64) std::atomic<std::int64_t> unfinished_{0};
  alignas(64) std::atomic<std::uint32_t> runs_started_{0};
  alignas(64) std::atomic<std::uint32_t> runs_finished_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace attune::device
