// Devices as the defaults tell them apart (layer registry).
#pragma once

#include <cstdint>
#include <string_view>

#include <attune/device.hpp>

namespace attune::registry {

enum class DeviceClass : std::uint8_t {
  cpu,
  cpu_amx,
  sm7x,
  sm8x,
  sm90,
  sm100,
  sm110,
  sm120,
  hip,
  xpu,
  npu
};

[[nodiscard]] constexpr std::string_view name(DeviceClass c) {
  switch (c) {
    case DeviceClass::cpu: return "cpu";
    case DeviceClass::cpu_amx: return "cpu:amx";
    case DeviceClass::sm7x: return "cuda before sm80";
    case DeviceClass::sm8x: return "cuda:sm80 to sm89";
    case DeviceClass::sm90: return "cuda:sm90";
    case DeviceClass::sm100: return "cuda:sm100 to sm103";
    case DeviceClass::sm110: return "cuda:sm110";
    case DeviceClass::sm120: return "cuda:sm120 and later";
    case DeviceClass::hip: return "hip";
    case DeviceClass::xpu: return "xpu";
    case DeviceClass::npu: return "npu";
  }
  return "?";
}

[[nodiscard]] inline DeviceClass device_class(const DeviceInfo& device) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return device.isa == CpuIsa::amx ? DeviceClass::cpu_amx : DeviceClass::cpu;
    case DeviceKind::hip: return DeviceClass::hip;
    case DeviceKind::xpu: return DeviceClass::xpu;
    case DeviceKind::npu: return DeviceClass::npu;
    case DeviceKind::cuda: break;
  }
  switch (device.sm / 10) {
    case 8: return DeviceClass::sm8x;
    case 9: return DeviceClass::sm90;
    case 10: return DeviceClass::sm100;
    case 11: return DeviceClass::sm110;
    case 12: return DeviceClass::sm120;
    default: return device.sm > 120 ? DeviceClass::sm120 : DeviceClass::sm7x;
  }
}

}  // namespace attune::registry
