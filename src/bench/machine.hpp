// The machine that cases run on: its memory, its clock, its caches and what it can do at most
// (layer bench).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

namespace attune::bench {

/// Measured once a run.
struct Ceilings {
  double bytes_per_s = 0.0;
  double bf16_flops = 0.0;
  double f32_flops = 0.0;
  double int8_ops = 0.0;   ///< of products of signed bytes; 0 where the unit has none
  double latency_s = 0.0;  ///< a case whose floor is below this is bound by start and wake-up
  std::string bandwidth_how{};
  std::string bf16_how{};
  std::string f32_how{};
  std::string int8_how{};
};

struct RunOptions {
  int min_repeats = 3;
  int max_repeats = 31;
  double max_seconds = 2.0;  ///< of timed runs; at least min_repeats are made all the same
};

class Machine {
 public:
  using Work = std::function<Status(Stream)>;

  virtual ~Machine() = default;
  [[nodiscard]] virtual Stream stream() const = 0;
  /// Of CPU backends; null elsewhere.
  [[nodiscard]] virtual Executor* executor() const = 0;
  /// Lives as long as somebody holds it, and not longer than the machine.
  [[nodiscard]] virtual Result<std::shared_ptr<void>> allocate(std::size_t bytes) = 0;
  /// For plans: where the host writes what the device reads.
  [[nodiscard]] virtual Result<std::shared_ptr<void>> allocate_host(std::size_t bytes) = 0;
  /// `pattern` again and again, the last one cut.
  virtual Status fill(void* to, std::size_t bytes, const void* pattern,
                      std::size_t pattern_bytes) = 0;
  [[nodiscard]] virtual Result<Ceilings> ceilings() = 0;
  /// Seconds of each timed run of `work`, with cold caches. The caller has run it once already.
  [[nodiscard]] virtual Result<std::vector<double>> time(const Work& work,
                                                         const RunOptions& options) = 0;
};

/// `executor` outlives it.
[[nodiscard]] std::unique_ptr<Machine> host_machine(Executor& executor, CpuIsa isa);

/// A present GPU, by libattune_cuda.so.
[[nodiscard]] Result<std::unique_ptr<Machine>> cuda_machine(const DeviceInfo& device);

/// The clock's rule for how often: whether another run is due after `runs` that took `seconds`.
[[nodiscard]] constexpr bool another_run(const RunOptions& o, std::size_t runs, double seconds) {
  const auto n = static_cast<int>(runs);
  return n < o.min_repeats || (n < o.max_repeats && seconds < o.max_seconds);
}

}  // namespace attune::bench
