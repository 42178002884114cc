// What a device is, as facts: nothing here opens a driver (layer device).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

namespace attune {

enum class DeviceKind : std::uint8_t { cpu, cuda, hip, xpu, npu };

[[nodiscard]] constexpr std::string_view name(DeviceKind k) {
  switch (k) {
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
    case DeviceKind::hip: return "hip";
    case DeviceKind::xpu: return "xpu";
    case DeviceKind::npu: return "npu";
  }
  return "?";
}

/// CPU kernel levels, each including the ones before it. `avx512` asks for F, BW, DQ, VL;
/// `avx512_bf16` adds BF16, VBMI and VNNI; `amx` adds AMX-TILE and AMX-BF16 with the operating system's
/// permission.
enum class CpuIsa : std::uint8_t { scalar, avx2, avx512, avx512_bf16, amx };

[[nodiscard]] constexpr std::string_view name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::scalar: return "scalar";
    case CpuIsa::avx2: return "avx2";
    case CpuIsa::avx512: return "avx512";
    case CpuIsa::avx512_bf16: return "avx512_bf16";
    case CpuIsa::amx: return "amx";
  }
  return "?";
}

[[nodiscard]] Result<CpuIsa> parse_cpu_isa(std::string_view word);

/// Facts about one device, present or imagined. `explain` works on imagined ones.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  std::string name{};             ///< marketing name, or the word it was parsed from
  int index = 0;                  ///< CUDA ordinal after CUDA_VISIBLE_DEVICES
  int sm = 0;                     ///< CUDA: 10 * major + minor; 0 = none or unknown
  std::string arch{};             ///< HIP: gfx942 …
  CpuIsa isa = CpuIsa::scalar;    ///< CPU: the highest usable level, after --force-isa
  bool has_amx_int8 = false;      ///< CPU: AMX-INT8 usable
  int num_units = 1;              ///< CPU: cores this process may use; CUDA: SMs
  std::int64_t memory_bytes = 0;  ///< 0 = unknown
  bool present = true;  ///< false: described by a word such as cuda:sm90, not found on this machine
};

/// What this machine's CPU can run, capped at `cap`. Reads CPUID and XCR0; AMX also asks the kernel
/// for permission.
[[nodiscard]] DeviceInfo cpu_device(CpuIsa cap = CpuIsa::amx);

/// GPUs through NVML (opened with dlopen, closed again); empty where there is none. Never calls the
/// CUDA runtime.
[[nodiscard]] std::vector<DeviceInfo> cuda_devices();

/// `auto`, `cpu`, `cuda`, `cuda:N` (present devices) or `cpu:avx2`, `cuda:sm90`, `hip:gfx942`,
/// `xpu`, `npu` (imagined ones).
[[nodiscard]] Result<DeviceInfo> parse_device(std::string_view word, CpuIsa cap = CpuIsa::amx);

/// A queue of device work: a cudaStream_t on CUDA, nothing on a CPU.
struct Stream {
  void* handle = nullptr;
};

/// Runs work items on threads; a caller may hand in its own. run() returns when every item is done.
/// Items are claimed in order, so the costliest should come first. Re-entrant calls from inside an
/// item are not allowed.
class Executor {
 public:
  virtual ~Executor() = default;
  [[nodiscard]] virtual int num_threads() const = 0;
  /// Calls body(context, item, thread) for every item in 0…num_items-1; thread is in
  /// 0…num_threads()-1.
  virtual void run(std::int64_t num_items,
                   void (*body)(void* context, std::int64_t item, int thread), void* context) = 0;
};

/// Attune's own Executor: `num_threads` threads, the caller of run() among them.
[[nodiscard]] Result<std::unique_ptr<Executor>> make_thread_pool(int num_threads);

}  // namespace attune
