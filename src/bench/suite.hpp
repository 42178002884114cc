// Suites: the cases that stand for models in use, by name (layer bench).
#pragma once

#include <string_view>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "bench/case.hpp"

namespace attune::bench {

/// prefill, decode, mla, linear, cascade, sparse, growth, or all but growth; of sizes that keep
/// `device` busy.
[[nodiscard]] Result<std::vector<Case>> suite(std::string_view name, DeviceKind device);

}  // namespace attune::bench
