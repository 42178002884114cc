#include <chrono>
#include <cstring>

#include "base/math.hpp"
#include "bench/ceilings.hpp"
#include "bench/machine.hpp"
#include "device/host_memory.hpp"

namespace attune::bench {
namespace {

constexpr std::int64_t kCeilingBytes = std::int64_t{1} << 30;
/// Several times the largest last-level cache share.
constexpr std::int64_t kFlushBytes = std::int64_t{192} << 20;
constexpr double kLatencySeconds = 20e-6;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class HostMachine final : public Machine {
 public:
  HostMachine(Executor& executor, CpuIsa isa) : executor_(executor), isa_(isa) {}

  [[nodiscard]] Stream stream() const override { return {}; }
  [[nodiscard]] Executor* executor() const override { return &executor_; }

  Result<std::shared_ptr<void>> allocate(std::size_t bytes) override {
    std::shared_ptr<void> memory = device::host_memory(bytes);
    if (memory == nullptr)
      return Status(StatusCode::out_of_memory,
                    "no " + std::to_string(bytes >> 20) + " MiB for the arrays of the case");
    return memory;
  }
  Result<std::shared_ptr<void>> allocate_host(std::size_t bytes) override {
    return allocate(bytes);
  }

  // By all threads, so that pages lie near them.
  Status fill(void* to, std::size_t bytes, const void* pattern,
              std::size_t pattern_bytes) override {
    struct Job {
      char* to;
      std::size_t bytes;
      const void* pattern;
      std::size_t pattern_bytes;
    } job{static_cast<char*>(to), bytes, pattern, pattern_bytes};
    const auto copy = [](void* context, std::int64_t item, int) {
      const Job& j = *static_cast<const Job*>(context);
      const std::size_t at = static_cast<std::size_t>(item) * j.pattern_bytes;
      std::memcpy(j.to + at, j.pattern, std::min(j.pattern_bytes, j.bytes - at));
    };
    executor_.run(static_cast<std::int64_t>(base::ceil_div(bytes, pattern_bytes)), copy, &job);
    return {};
  }

  Result<Ceilings> ceilings() override {
    const Ceiling read = read_bandwidth(executor_, isa_, kCeilingBytes);
    const Ceiling bf16 = product_rate(executor_, isa_, DType::bf16);
    const Ceiling f32 = product_rate(executor_, isa_, DType::f32);
    const bool bytes = has_int8_products(isa_);
    const Ceiling int8 = bytes ? product_rate(executor_, isa_, DType::i8) : Ceiling{};
    return Ceilings{.bytes_per_s = read.rate,
                    .bf16_flops = std::max(bf16.rate, f32.rate),
                    .f32_flops = f32.rate,
                    .int8_ops = int8.rate,
                    .latency_s = kLatencySeconds,
                    .bandwidth_how = read.how,
                    .bf16_how = bf16.rate > f32.rate ? bf16.how : f32.how,
                    .f32_how = f32.how,
                    .int8_how = int8.how};
  }

  Result<std::vector<double>> time(const Work& work, const RunOptions& options) override {
    if (Status s = prepare_flush(); !s.ok()) return s;
    std::vector<double> seconds;
    for (double total = 0.0; another_run(options, seconds.size(), total); total += seconds.back()) {
      flush();
      const auto start = std::chrono::steady_clock::now();
      if (Status s = work(stream()); !s.ok()) return s;
      seconds.push_back(seconds_since(start));
    }
    return seconds;
  }

 private:
  static constexpr std::int64_t kPieces = 192;
  static constexpr std::int64_t kPieceBytes = kFlushBytes / kPieces;

  Status prepare_flush() {
    if (flush_ != nullptr) return {};
    auto memory = allocate(kFlushBytes);
    if (!memory.ok()) return memory.status();
    flush_ = std::move(*memory);
    std::memset(flush_.get(), 1, kFlushBytes);  // untouched pages would all be one
    return {};
  }

  /// Reads more than the caches hold, on every thread. Reads, because lines written here would
  /// still be on their way to memory while the case is timed.
  void flush() {
    executor_.run(
        kPieces,
        [](void* context, std::int64_t piece, int) {
          const auto* data = static_cast<const volatile unsigned char*>(context);
          constexpr std::int64_t kLine = 64;
          for (std::int64_t i = piece * kPieceBytes; i < (piece + 1) * kPieceBytes; i += kLine)
            static_cast<void>(data[i]);
        },
        flush_.get());
  }

  Executor& executor_;
  CpuIsa isa_;
  std::shared_ptr<void> flush_;
};

}  // namespace

std::unique_ptr<Machine> host_machine(Executor& executor, CpuIsa isa) {
  return std::make_unique<HostMachine>(executor, isa);
}

}  // namespace attune::bench
