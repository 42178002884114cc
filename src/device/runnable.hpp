// Which of the devices that words name kernels run on (layer device).
#pragma once

#include <attune/device.hpp>
#include <attune/status.hpp>

namespace attune::device {

/// Refuses devices that only `explain` can speak of: imagined ones, but for CPU levels that this
/// machine has.
[[nodiscard]] Status check_runnable(const DeviceInfo& device);

}  // namespace attune::device
