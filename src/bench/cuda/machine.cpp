// A GPU for the benchmark: events are its clock, a kernel that reads empties its cache.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/cuda/status.hpp"
#include "base/join.hpp"
#include "bench/cuda_machine_entry.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/probe/sm80/probe.hpp"
#include "kernels/probe/sm90/probe.hpp"

namespace attune::bench {
namespace {

namespace probe = kernels::probe;
using base::cuda::call_status;
using device::cuda::MemoryKind;

constexpr std::size_t kCeilingBytes = std::size_t{2} << 30;
constexpr std::size_t kFlushBytes = std::size_t{256} << 20;  ///< several times the largest cache
constexpr std::int64_t kProductRounds = 1 << 13;
constexpr double kLatencySeconds = 5e-6;
constexpr int kProbeRepeats = 7;
/// Before each case: a card that has just worked hard has lowered its clock.
constexpr auto kRest = std::chrono::milliseconds(300);
/// Before each run, as peers rest while Python queues their launches (bench/peers/cuda_peer.py):
/// the longest products are bound by power, and each pause buys them clock.
constexpr auto kPause = std::chrono::milliseconds(2);

class Event {
 public:
  Event() { (void)cudaEventCreate(&event_); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaMachine final : public Machine {
 public:
  CudaMachine(device::cuda::CardFacts card, cudaStream_t stream) : card_(card), stream_(stream) {}
  ~CudaMachine() override { (void)cudaStreamDestroy(stream_); }
  CudaMachine(const CudaMachine&) = delete;
  CudaMachine& operator=(const CudaMachine&) = delete;

  [[nodiscard]] Stream stream() const override { return {.handle = stream_}; }
  [[nodiscard]] Executor* executor() const override { return nullptr; }

  Result<std::shared_ptr<void>> allocate(std::size_t bytes) override {
    return memory(MemoryKind::device, bytes);
  }
  Result<std::shared_ptr<void>> allocate_host(std::size_t bytes) override {
    return memory(MemoryKind::page_locked, bytes);
  }

  // One copy of the pattern over the bus, then what is there already, doubled.
  Status fill(void* to, std::size_t bytes, const void* pattern,
              std::size_t pattern_bytes) override {
    auto* const begin = static_cast<char*>(to);
    std::size_t there = std::min(bytes, pattern_bytes);
    Status s = call_status(cudaMemcpyAsync(begin, pattern, there, cudaMemcpyHostToDevice, stream_),
                           "copy to the device");
    while (s.ok() && there < bytes) {
      const std::size_t more = std::min(there, bytes - there);
      s = call_status(
          cudaMemcpyAsync(begin + there, begin, more, cudaMemcpyDeviceToDevice, stream_),
          "copy on the device");
      there += more;
    }
    if (!s.ok()) return s;
    return call_status(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  Result<Ceilings> ceilings() override {
    if (Status s = prepare(); !s.ok()) return s;
    auto large = allocate(kCeilingBytes);
    if (!large.ok()) return large.status();
    if (Status s =
            call_status(cudaMemsetAsync(large->get(), 1, kCeilingBytes, stream_), "cudaMemset");
        !s.ok())
      return s;
    Ceilings found{.latency_s = kLatencySeconds,
                   .bandwidth_how = base::join("reading ", kCeilingBytes >> 20, " MiB"),
                   .bf16_how = card_.sm == 90 ? "wgmma.m64n256k16" : "mma.m16n8k16",
                   .f32_how = "fma"};
    const auto rate = [&](auto&& launch, double& to) -> Status {
      double best = 0.0;
      for (int i = 0; i < kProbeRepeats; ++i) {
        double work = 0.0;
        const Result<double> seconds = timed([&](Stream) -> Status {
          work = launch();
          return base::cuda::launch_status("probe");
        });
        if (!seconds.ok()) return seconds.status();
        best = std::max(best, work / *seconds);
      }
      to = best;
      return {};
    };
    Status s = rate(
        [&] {
          probe::sm80::read(large->get(), kCeilingBytes, sink(), card_.num_sms, stream_);
          return static_cast<double>(kCeilingBytes);
        },
        found.bytes_per_s);
    if (s.ok())
      s = rate(
          [&] {
            return card_.sm == 90
                       ? probe::sm90::multiply_bf16(kProductRounds, sink(), card_.num_sms, stream_)
                       : probe::sm80::multiply_bf16(kProductRounds, sink(), card_.num_sms, stream_);
          },
          found.bf16_flops);
    if (s.ok())
      s = rate(
          [&] { return probe::sm80::multiply_f32(kProductRounds, sink(), card_.num_sms, stream_); },
          found.f32_flops);
    if (!s.ok()) return s;
    return found;
  }

  Result<std::vector<double>> time(const Work& work, const RunOptions& options) override {
    if (Status s = prepare(); !s.ok()) return s;
    if (Status s = call_status(cudaStreamSynchronize(stream_), "the case"); !s.ok()) return s;
    std::this_thread::sleep_for(kRest);
    std::vector<double> seconds;
    for (double total = 0.0; another_run(options, seconds.size(), total); total += seconds.back()) {
      std::this_thread::sleep_for(kPause);
      // Reads: lines written here would still be on their way to memory while the case is timed.
      // Behind them the launches of the case wait already, so that their host time is not seen.
      probe::sm80::read(flush_.get(), kFlushBytes, sink(), card_.num_sms, stream_);
      const Result<double> once = timed(work);
      if (!once.ok()) return once.status();
      seconds.push_back(*once);
    }
    return seconds;
  }

 private:
  Result<std::shared_ptr<void>> memory(MemoryKind kind, std::size_t bytes) {
    auto made = device::cuda::Memory::allocate(kind, bytes);
    if (!made.ok()) return made.status();
    auto owned = std::make_shared<device::cuda::Memory>(std::move(*made));
    return std::shared_ptr<void>(owned, owned->data());
  }

  Status prepare() {
    if (flush_ != nullptr) return {};
    auto made = allocate(kFlushBytes + sizeof(float));
    if (!made.ok()) return made.status();
    flush_ = std::move(*made);
    return call_status(cudaMemsetAsync(flush_.get(), 1, kFlushBytes, stream_), "cudaMemset");
  }
  [[nodiscard]] float* sink() const {
    return reinterpret_cast<float*>(static_cast<char*>(flush_.get()) + kFlushBytes);
  }

  Result<double> timed(const Work& work) {
    if (Status s = call_status(cudaEventRecord(begin_.get(), stream_), "cudaEventRecord"); !s.ok())
      return s;
    if (Status s = work(stream()); !s.ok()) return s;
    if (Status s = call_status(cudaEventRecord(end_.get(), stream_), "cudaEventRecord"); !s.ok())
      return s;
    if (Status s = call_status(cudaEventSynchronize(end_.get()), "the timed run"); !s.ok())
      return s;
    float ms = 0.0f;
    if (Status s = call_status(cudaEventElapsedTime(&ms, begin_.get(), end_.get()),
                               "cudaEventElapsedTime");
        !s.ok())
      return s;
    return static_cast<double>(ms) * 1e-3;
  }

  device::cuda::CardFacts card_;
  cudaStream_t stream_;
  Event begin_;
  Event end_;
  std::shared_ptr<void> flush_;
};

Result<std::unique_ptr<Machine>> make_machine(const DeviceInfo& device) {
  if (Status s = call_status(cudaSetDevice(device.index), "cudaSetDevice"); !s.ok()) return s;
  const auto card = device::cuda::card_facts(device.index);
  if (!card.ok()) return card.status();
  cudaStream_t stream = nullptr;
  if (Status s = call_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                             "cudaStreamCreate");
      !s.ok())
    return s;
  return std::unique_ptr<Machine>(std::make_unique<CudaMachine>(*card, stream));
}

}  // namespace
}  // namespace attune::bench

extern "C" __attribute__((visibility("default"))) void attune_bench_machine_v1(
    const attune::DeviceInfo& device,
    attune::Result<std::unique_ptr<attune::bench::Machine>>& made) {
  made = attune::bench::make_machine(device);
}
