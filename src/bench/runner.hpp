// Times one case on one backend: random data, permuted pages, cold caches, the median of repeats
// (layer bench).
#pragma once

#include <cstdint>
#include <string>

#include <attune/device.hpp>
#include <attune/registry.hpp>
#include <attune/status.hpp>

#include "bench/case.hpp"

namespace attune::bench {

/// Of the machine, measured once a run.
struct Ceilings {
  double bytes_per_s = 0.0;
  double bf16_flops = 0.0;
  double f32_flops = 0.0;
  std::string bandwidth_how;
  std::string bf16_how;
  std::string f32_how;
};

[[nodiscard]] Ceilings measure_ceilings(Executor& executor, CpuIsa isa);

enum class Bound : std::uint8_t { compute, memory, latency };

[[nodiscard]] constexpr std::string_view name(Bound b) {
  switch (b) {
    case Bound::compute: return "compute";
    case Bound::memory: return "memory";
    case Bound::latency: return "latency";
  }
  return "?";
}

struct Row {
  std::string case_name;
  std::string backend;
  std::string device;
  double ms = 0.0;
  double ms_min = 0.0;
  double ms_max = 0.0;
  double tflops = 0.0;
  double gbps = 0.0;
  double percent_of_ceiling = 0.0;
  Bound bound = Bound::memory;
};

struct RunOptions {
  int min_repeats = 3;
  int max_repeats = 31;
  double max_seconds = 2.0;  ///< of timed runs; at least min_repeats are made all the same
};

/// `backend` by name. Refusals come back as a Status of code unsupported.
[[nodiscard]] Result<Row> run_case(const Registry& registry, std::string_view backend,
                                   const Case& c, const DeviceInfo& device, Executor& executor,
                                   const Ceilings& ceilings, const RunOptions& options);

}  // namespace attune::bench
