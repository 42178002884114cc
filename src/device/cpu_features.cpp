// What this CPU can run: CPUID says what the silicon has, XCR0 what the operating system saves, and
// AMX also needs the kernel's permission before its first tile instruction. Any "no" lowers the
// level.
#include "device/cpu_features.hpp"

#include <cpuid.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <attune/device.hpp>

namespace attune {
namespace device {
namespace {

struct CpuidLeaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf cpuid(unsigned leaf, unsigned subleaf) {
  CpuidLeaf r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool bit(unsigned word, int n) { return ((word >> n) & 1u) != 0; }

std::uint64_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

bool request_amx_permission() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

}  // namespace

CpuFeatures detect_cpu_features() {
  CpuFeatures f;
  const CpuidLeaf one = cpuid(1, 0);
  const CpuidLeaf seven = cpuid(7, 0);
  const CpuidLeaf seven_one = cpuid(7, 1);

  const bool osxsave = bit(one.ecx, 27);
  const std::uint64_t xcr0 = osxsave ? read_xcr0() : 0;
  f.os_saves_ymm = (xcr0 & 0x6) == 0x6;
  f.os_saves_zmm = f.os_saves_ymm && (xcr0 & 0xe0) == 0xe0;
  f.os_saves_tiles = (xcr0 & 0x60000) == 0x60000;

  f.avx2 = bit(seven.ebx, 5);
  f.fma = bit(one.ecx, 12);
  f.f16c = bit(one.ecx, 29);
  f.avx512f = bit(seven.ebx, 16);
  f.avx512dq = bit(seven.ebx, 17);
  f.avx512bw = bit(seven.ebx, 30);
  f.avx512vl = bit(seven.ebx, 31);
  f.avx512_vbmi = bit(seven.ecx, 1);
  f.avx512_vnni = bit(seven.ecx, 11);
  f.avx512_bf16 = bit(seven_one.eax, 5);
  f.amx_bf16 = bit(seven.edx, 22);
  f.amx_tile = bit(seven.edx, 24);
  f.amx_int8 = bit(seven.edx, 25);
  if (f.amx_tile && f.os_saves_tiles) f.amx_permitted = request_amx_permission();
  return f;
}

CpuIsa usable_isa(const CpuFeatures& f) {
  if (!(f.avx2 && f.fma && f.f16c && f.os_saves_ymm)) return CpuIsa::scalar;
  if (!(f.avx512f && f.avx512dq && f.avx512bw && f.avx512vl && f.os_saves_zmm)) return CpuIsa::avx2;
  if (!(f.avx512_bf16 && f.avx512_vbmi && f.avx512_vnni)) return CpuIsa::avx512;
  if (!(f.amx_tile && f.amx_bf16 && f.amx_permitted)) return CpuIsa::avx512_bf16;
  return CpuIsa::amx;
}

std::string cpu_model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::vector<int> usable_core_numbers() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

int usable_cores() { return std::max(1, static_cast<int>(usable_core_numbers().size())); }

std::int64_t physical_memory_bytes() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace device

DeviceInfo cpu_device(CpuIsa cap) {
  const device::CpuFeatures f = device::detect_cpu_features();
  DeviceInfo d;
  d.kind = DeviceKind::cpu;
  d.name = device::cpu_model_name();
  d.isa = std::min(cap, device::usable_isa(f));
  d.has_amx_int8 = d.isa == CpuIsa::amx && f.amx_int8;
  d.num_units = device::usable_cores();
  d.memory_bytes = device::physical_memory_bytes();
  return d;
}

}  // namespace attune
