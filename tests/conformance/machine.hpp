// This machine as the suite's subject.
#pragma once

#include <algorithm>
#include <memory>

#include "backends/reference/descriptor.hpp"
#include "conformance/suite.hpp"
#include "device/thread_pool.hpp"

namespace attune::conformance {

class Machine {
 public:
  explicit Machine(CpuIsa cap = CpuIsa::amx, int least_threads = 2)
      : device_(cpu_device(cap)), memory_(host_memory()) {
    auto pool =
        device::ThreadPool::make({.num_threads = std::max(least_threads, device_.num_units)});
    require(pool.ok(), "a pool of threads");
    pool_ = std::move(*pool);
  }
  [[nodiscard]] Subject subject(const BackendDescriptor& descriptor, BackendFactory make) const {
    return {.descriptor = &descriptor,
            .make = make,
            .oracle = backends::reference::kMake,
            .device = device_,
            .executor = pool_.get(),
            .memory = memory_.get()};
  }

 private:
  DeviceInfo device_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<device::ThreadPool> pool_;
};

}  // namespace attune::conformance
