// Words to devices: present ones, and imagined ones for `explain`.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include <attune/device.hpp>

#include "device/nvml_probe.hpp"

namespace attune {
namespace {

constexpr CpuIsa kIsas[] = {CpuIsa::scalar, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16,
                            CpuIsa::amx};

Status bad_device(std::string_view word) {
  return invalid_argument(
      "--device '" + std::string(word) +
      "' is not known; wanted auto, cpu, cuda, cuda:N, or for explain and backends cpu:avx2, "
      "cpu:avx512, cpu:amx, cuda:sm80, cuda:sm90, cuda:sm100, cuda:sm120, hip:gfx942, xpu, npu");
}

DeviceInfo imagined(DeviceKind kind, std::string_view word) {
  DeviceInfo d;
  d.kind = kind;
  d.name = std::string(word);
  d.present = false;
  return d;
}

Result<DeviceInfo> present_gpu(int index) {
  const std::vector<DeviceInfo> gpus = cuda_devices();
  if (index < static_cast<int>(gpus.size())) return gpus[static_cast<std::size_t>(index)];
  const device::NvmlReport report = device::probe_nvml();
  return unsupported(
      "--device cuda:" + std::to_string(index) + ": this machine has " +
          std::to_string(gpus.size()) + " usable NVIDIA GPUs" +
          (report.problem.empty() ? "" : " (" + report.problem + ")") +
          "; use --device cpu, or name an imagined GPU such as cuda:sm90 with explain",
      {{"cuda", "device", "an NVIDIA GPU number " + std::to_string(index),
        std::to_string(gpus.size()) + " GPUs"}});
}

}  // namespace

Result<CpuIsa> parse_cpu_isa(std::string_view word) {
  for (CpuIsa isa : kIsas)
    if (name(isa) == word) return isa;
  return invalid_argument("--force-isa '" + std::string(word) +
                          "' is not known; wanted scalar, avx2, avx512, avx512_bf16 or amx");
}

std::vector<DeviceInfo> cuda_devices() {
  std::vector<DeviceInfo> devices;
  // CUDA itself reads this variable, so the numbering cannot be told without it.
  for (device::NvmlGpu& gpu :
       device::visible_gpus(device::probe_nvml().gpus, std::getenv("CUDA_VISIBLE_DEVICES")))
    devices.push_back(std::move(gpu.info));
  return devices;
}

Result<DeviceInfo> parse_device(std::string_view word, CpuIsa cap) {
  // The embedded default is the CPU: `auto` takes a GPU only where the program was built and told
  // to look for one.
  if (word == "auto" || word == "cpu") return cpu_device(cap);
  if (word == "cuda") return present_gpu(0);
  if (word == "xpu") return imagined(DeviceKind::xpu, word);
  if (word == "npu") return imagined(DeviceKind::npu, word);
  if (word.starts_with("cpu:")) {
    const std::string_view isa_word = word.substr(4);
    for (CpuIsa isa : kIsas) {
      if (name(isa) != isa_word) continue;
      DeviceInfo d = imagined(DeviceKind::cpu, word);
      d.isa = isa;
      d.has_amx_int8 = isa == CpuIsa::amx;
      return d;
    }
    return bad_device(word);
  }
  if (word.starts_with("hip:gfx") && word.size() > 7) {
    DeviceInfo d = imagined(DeviceKind::hip, word);
    d.arch = std::string(word.substr(4));
    return d;
  }
  if (word.starts_with("cuda:")) {
    std::string_view rest = word.substr(5);
    const bool is_sm = rest.starts_with("sm");
    if (is_sm) rest.remove_prefix(2);
    int number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc{} || end != rest.data() + rest.size() || number < 0)
      return bad_device(word);
    if (!is_sm) return present_gpu(number);
    if (number < 50 || number > 139) return bad_device(word);
    DeviceInfo d = imagined(DeviceKind::cuda, word);
    d.sm = number;
    return d;
  }
  return bad_device(word);
}

}  // namespace attune
