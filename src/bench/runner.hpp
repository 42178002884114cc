// Times one case on one backend: random data, permuted pages, cold caches, the median of repeats
// (layer bench).
#pragma once

#include <cstdint>
#include <string>

#include <attune/device.hpp>
#include <attune/registry.hpp>
#include <attune/status.hpp>

#include "bench/case.hpp"
#include "bench/machine.hpp"

namespace attune::bench {

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

/// `backend` by name. Refusals come back as a Status of code unsupported.
[[nodiscard]] Result<Row> run_case(const Registry& registry, std::string_view backend,
                                   const Case& c, const DeviceInfo& device, Machine& machine,
                                   const Ceilings& ceilings, const RunOptions& options);

}  // namespace attune::bench
