// The raw answers behind cpu_device(); `attune doctor` prints them (layer device).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <attune/device.hpp>

namespace attune::device {

struct CpuFeatures {
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx512f = false;
  bool avx512dq = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512_vnni = false;
  bool avx512_vbmi = false;
  bool avx512_bf16 = false;
  bool amx_tile = false;
  bool amx_bf16 = false;
  bool amx_int8 = false;
  bool os_saves_ymm = false;
  bool os_saves_zmm = false;
  bool os_saves_tiles = false;
  bool amx_permitted = false;  ///< the kernel granted the tile state to this process
};

[[nodiscard]] CpuFeatures detect_cpu_features();

/// The highest level whose every bit is present and usable.
[[nodiscard]] CpuIsa usable_isa(const CpuFeatures& features);

[[nodiscard]] std::string cpu_model_name();

/// Cores in this process's affinity mask.
[[nodiscard]] int usable_cores();
/// Which those are, in order; empty where the system does not say.
[[nodiscard]] std::vector<int> usable_core_numbers();

[[nodiscard]] std::int64_t physical_memory_bytes();

}  // namespace attune::device
