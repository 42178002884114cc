// What a device is, as facts, and what runs work on a CPU (layer device). Nothing here creates a
// CUDA context: facts about GPUs come from NVML.
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

/// CPU kernel levels, each including the ones before it. `avx2` asks for FMA and F16C too, `avx512`
/// for F, BW, DQ and VL; `avx512_bf16` adds BF16, VBMI and VNNI; `amx` adds AMX-TILE and AMX-BF16,
/// with the operating system's permission.
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

/// By name(); anything else is an invalid_argument that lists the words.
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

/// Present devices: `cpu` and `auto` (this CPU), `cuda` and `cuda:N`. Imagined ones, to explain or
/// list what would serve them: `cpu:avx2`, `cuda:sm90`, `hip:gfx942`, `xpu`, `npu`. A GPU that is
/// not there, or an unknown word, is an invalid_argument.
[[nodiscard]] Result<DeviceInfo> parse_device(std::string_view word, CpuIsa cap = CpuIsa::amx);

/// A queue of device work, owned by the caller: a cudaStream_t on CUDA, unused on a CPU.
struct Stream {
  void* handle = nullptr;
};

/// Runs work items on threads; an engine may hand in its own. Backends call run() from one thread at
/// a time, and never from inside an item.
class Executor {
 public:
  virtual ~Executor() = default;
  [[nodiscard]] virtual int num_threads() const = 0;
  /// Calls body(context, item, thread) for every item of 0 … num_items - 1 and returns when all are
  /// done. `thread` is in 0 … num_threads() - 1, and no two calls with one thread overlap: backends
  /// keep a slice of workspace for each. Items should be claimed in order: the costliest come first.
  virtual void run(std::int64_t num_items,
                   void (*body)(void* context, std::int64_t item, int thread), void* context) = 0;
};

/// Attune's own Executor: `num_threads` threads, the caller of run() among them. Refuses counts
/// below 1.
[[nodiscard]] Result<std::unique_ptr<Executor>> make_thread_pool(int num_threads);

}  // namespace attune
