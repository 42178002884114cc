#include "device/runnable.hpp"

#include <string>

namespace attune::device {

Status check_runnable(const DeviceInfo& device) {
  if (device.present) return {};
  const std::string what = "--device " + device.name;
  if (device.kind != DeviceKind::cpu)
    return unsupported(
        what + " is imagined: explain and backends speak of it, nothing runs on it",
        {{std::string(name(device.kind)), "device", "a device of this machine", device.name}});
  const CpuIsa have = cpu_device().isa;
  if (device.isa <= have) return {};
  return unsupported(what + ": this machine's CPU has " + std::string(name(have)) +
                         "; --device cpu takes what there is",
                     {{"cpu", "isa", std::string(name(device.isa)), std::string(name(have))}});
}

}  // namespace attune::device
