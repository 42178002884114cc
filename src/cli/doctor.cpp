// attune doctor: what the machine has, what is missing, and what to do about each.
#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>

#include "cli/command.hpp"
#include "device/cpu_features.hpp"
#include "device/numa.hpp"
#include "device/nvml_probe.hpp"

namespace attune::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Bit {
  const char* name;
  bool present;
  bool usable;
};

std::vector<Bit> cpu_bits(const device::CpuFeatures& f) {
  const bool ymm = f.os_saves_ymm;
  const bool zmm = f.os_saves_zmm;
  const bool tiles = f.amx_permitted;
  return {{"avx2", f.avx2, f.avx2 && ymm},
          {"fma", f.fma, f.fma && ymm},
          {"f16c", f.f16c, f.f16c && ymm},
          {"avx512f", f.avx512f, f.avx512f && zmm},
          {"avx512bw", f.avx512bw, f.avx512bw && zmm},
          {"avx512dq", f.avx512dq, f.avx512dq && zmm},
          {"avx512vl", f.avx512vl, f.avx512vl && zmm},
          {"avx512_vnni", f.avx512_vnni, f.avx512_vnni && zmm},
          {"avx512_vbmi", f.avx512_vbmi, f.avx512_vbmi && zmm},
          {"avx512_bf16", f.avx512_bf16, f.avx512_bf16 && zmm},
          {"amx_tile", f.amx_tile, f.amx_tile && tiles},
          {"amx_bf16", f.amx_bf16, f.amx_bf16 && tiles},
          {"amx_int8", f.amx_int8, f.amx_int8 && tiles}};
}

struct Library {
  const char* file;
  const char* purpose;
};

constexpr Library kLibraries[] = {
    {"libdnnl.so.3", "matrix products on the CPU (oneDNN 3)"},
    {"libdnnl.so.2", "matrix products on the CPU (oneDNN 2)"},
    {"libnvidia-ml.so.1", "facts about NVIDIA GPUs"},
    {"libcuda.so.1", "the CUDA driver"},
};

/// Whether the dynamic loader would find it. Opening a driver library could start it, so files are
/// looked for instead.
bool installed(const std::string& file) {
  const auto holds = [&](const std::filesystem::path& folder) {
    std::error_code error;
    return std::filesystem::exists(folder / file, error);
  };
  const char* given = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders(given == nullptr ? "" : given);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && holds(folder)) return true;
  for (const char* folder : {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
                             "/usr/local/lib", "/usr/local/nvidia/lib64", "/lib64", "/usr/lib"})
    if (holds(folder)) return true;
  return false;
}

std::vector<std::string> advice_for(const device::CpuFeatures& f, const device::NvmlReport& nvml,
                                    const DeviceInfo& cpu) {
  std::vector<std::string> advice;
  if (cpu.isa == CpuIsa::scalar)
    advice.emplace_back("this CPU lacks AVX2: attention runs in scalar code, slowly");
  if (f.avx512f && !f.os_saves_zmm)
    advice.emplace_back(
        "the CPU has AVX-512 but the operating system does not save its registers: check the "
        "hypervisor's or kernel's xsave settings");
  if (f.amx_tile && !f.amx_permitted)
    advice.emplace_back(
        "the CPU has AMX but the kernel refuses the tile state: Linux 5.16 or newer is needed, and "
        "a sandbox may forbid arch_prctl(ARCH_REQ_XCOMP_PERM)");
  if (!nvml.problem.empty())
    advice.emplace_back("no GPU facts: " + nvml.problem + "; --device cpu works without");
  return advice;
}

int run_doctor(bool as_json) {
  const device::CpuFeatures f = device::detect_cpu_features();
  const DeviceInfo cpu = cpu_device();
  const device::NvmlReport nvml = device::probe_nvml();
  const std::vector<DeviceInfo> gpus = cuda_devices();
  const std::vector<std::string> advice = advice_for(f, nvml, cpu);
  const std::size_t nodes = device::numa_nodes().size();

  if (as_json) {
    Json out;
    Json bits = Json::object();
    for (const Bit& bit : cpu_bits(f))
      bits[bit.name] = {{"present", bit.present}, {"usable", bit.usable}};
    out["cpu"] = {{"name", cpu.name},
                  {"isa", name(cpu.isa)},
                  {"cores", cpu.num_units},
                  {"numa_nodes", nodes},
                  {"memory_bytes", cpu.memory_bytes},
                  {"bits", bits}};
    out["gpus"] = Json::array();
    for (const DeviceInfo& gpu : gpus)
      out["gpus"].push_back({{"index", gpu.index},
                             {"name", gpu.name},
                             {"sm", gpu.sm},
                             {"memory_bytes", gpu.memory_bytes},
                             {"driver", nvml.driver}});
    out["libraries"] = Json::array();
    for (const Library& library : kLibraries)
      out["libraries"].push_back({{"file", library.file},
                                  {"purpose", library.purpose},
                                  {"found", installed(library.file)}});
    out["advice"] = advice;
    fmt::print("{}\n", out.dump(2));
    return kDone;
  }

  fmt::print("cpu   {}\n      {} cores, {} NUMA node{}, {:.1f} GiB, kernels up to {}\n", cpu.name,
             cpu.num_units, nodes, nodes == 1 ? "" : "s",
             static_cast<double>(cpu.memory_bytes) / (1 << 30), name(cpu.isa));
  fmt::print("      ");
  for (const Bit& bit : cpu_bits(f))
    if (bit.present) fmt::print("{}{} ", bit.name, bit.usable ? "" : "(not usable)");
  fmt::print("\n");
  for (const DeviceInfo& gpu : gpus)
    fmt::print("gpu   cuda:{} {}, SM {}.{}, {:.0f} GiB, driver {}\n", gpu.index, gpu.name,
               gpu.sm / 10, gpu.sm % 10, static_cast<double>(gpu.memory_bytes) / (1 << 30),
               nvml.driver);
  if (gpus.empty()) fmt::print("gpu   none{}\n", nvml.problem.empty() ? "" : ": " + nvml.problem);
  for (const Library& library : kLibraries)
    fmt::print("lib   {:<20} {:<8} {}\n", library.file,
               installed(library.file) ? "found" : "missing", library.purpose);
  for (const std::string& line : advice) fmt::print("note  {}\n", line);
  return kDone;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "doctor", "what this machine has, which of it is usable, and what to do about the rest");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "print exactly one JSON document on stdout");
  command->callback([as_json, &exit_code] { exit_code = run_doctor(*as_json); });
}

}  // namespace attune::cli
