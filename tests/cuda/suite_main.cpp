// The conformance suite over the CUDA backends of this build, without the loader in between: one
// program to carry to a machine with a GPU.
//
//   attune_cuda_suite [--full] [--one-dtype] [--repeats N] [--all-levels] [--plain] [--times]
//                     [--match GLOB] [BACKEND …]
//
// --one-dtype: of cases that differ in their types alone one, but for those that hold answers.
// --repeats: of a run whose bits may not change.
// --all-levels: flashinfer takes every shared prefix, whatever its cost test says of small shapes.
// --plain: flashinfer leaves Hopper's prefill kernels alone.
// --times: every case with its seconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include <attune/plugin.hpp>

#include "backends/flashinfer/cuda/backend.hpp"
#include "backends/reference/descriptor.hpp"
#include "conformance/cuda_memory_entry.hpp"
#include "conformance/suite.hpp"
#include "device/cuda/memory.hpp"
#include "device/thread_pool.hpp"

extern "C" const attune::PluginEntry* attune_backend_entry_v1();
extern "C" void attune_conformance_memory_v1(
    const attune::DeviceInfo& device,
    attune::Result<std::unique_ptr<attune::conformance::DeviceMemory>>& made);

namespace {

int fail(const attune::Status& status) {
  std::fprintf(stderr, "%s\n", status.text().c_str());
  return 1;
}

attune::Result<std::unique_ptr<attune::Backend>> make_sharing(
    const attune::BackendContext& context) {
  return attune::backends::flashinfer::make_cuda_with(
      context, {.cascade = attune::plan::CascadeMode::always, .hopper = true});
}

attune::Result<std::unique_ptr<attune::Backend>> make_plain(const attune::BackendContext& context) {
  return attune::backends::flashinfer::make_cuda_with(
      context, {.cascade = attune::plan::CascadeMode::by_cost});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace attune;
  using conformance::Verdict;
  conformance::SuiteOptions options;
  std::vector<std::string> wanted;
  int repeats = conformance::Subject{}.repeats;
  bool all_levels = false;
  bool plain = false;
  bool times = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--full") == 0)
      options.full = true;
    else if (std::strcmp(argv[i], "--one-dtype") == 0)
      options.every_dtype = false;
    else if (std::strcmp(argv[i], "--all-levels") == 0)
      all_levels = true;
    else if (std::strcmp(argv[i], "--plain") == 0)
      plain = true;
    else if (std::strcmp(argv[i], "--times") == 0)
      times = true;
    else if (std::strcmp(argv[i], "--repeats") == 0 && i + 1 < argc)
      repeats = std::atoi(argv[++i]);
    else if (std::strcmp(argv[i], "--match") == 0 && i + 1 < argc)
      options.match = argv[++i];
    else
      wanted.emplace_back(argv[i]);
  }
  const auto card = device::cuda::card_facts(0);
  if (!card.ok()) return fail(card.status());
  const DeviceInfo device{.kind = DeviceKind::cuda, .sm = card->sm, .num_units = card->num_sms};
  Result<std::unique_ptr<conformance::DeviceMemory>> memory(internal_error("no memory"));
  attune_conformance_memory_v1(device, memory);
  if (!memory.ok()) return fail(memory.status());
  auto pool = device::ThreadPool::make(
      {.num_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))});
  if (!pool.ok()) return fail(pool.status());

  int failed = 0;
  const PluginEntry& entry = *attune_backend_entry_v1();
  for (std::size_t b = 0; b < entry.num_backends; ++b) {
    const PluginBackend& backend = entry.backends[b];
    const std::string name(backend.descriptor->name);
    bool chosen = wanted.empty();
    for (const std::string& w : wanted) chosen = chosen || w == name;
    if (!chosen) continue;
    const conformance::Subject subject{.descriptor = backend.descriptor,
                                       .make = name != "flashinfer" ? backend.make
                                               : all_levels         ? &make_sharing
                                               : plain              ? &make_plain
                                                                    : backend.make,
                                       .oracle = backends::reference::kMake,
                                       .device = device,
                                       .executor = pool->get(),
                                       .memory = memory->get(),
                                       .repeats = repeats};
    int skips = 0;
    auto last = std::chrono::steady_clock::now();
    const auto show = [&](const conformance::CaseResult& r) {
      const auto now = std::chrono::steady_clock::now();
      if (times)
        std::printf("%8.3f s %s %s\n", std::chrono::duration<double>(now - last).count(),
                    name.c_str(), r.name.c_str());
      last = now;
      if (r.outcome.verdict == Verdict::passed) return;
      if (r.outcome.verdict == Verdict::skipped && ++skips > 20) return;
      std::printf("%s %s %s: %s\n", std::string(conformance::name(r.outcome.verdict)).c_str(),
                  name.c_str(), r.name.c_str(), r.outcome.reason.c_str());
      std::fflush(stdout);
    };
    const auto report = conformance::run_suite(subject, options, show);
    for (const auto& c : report.capabilities)
      if (c.exercised == 0)
        std::printf("not exercised: %s %s %s\n", name.c_str(), c.capability.c_str(),
                    c.reason.c_str());
    std::printf("%s: %d passed, %d failed, %d skipped\n", name.c_str(),
                report.count(Verdict::passed), report.count(Verdict::failed),
                report.count(Verdict::skipped));
    std::fflush(stdout);
    failed += report.count(Verdict::failed);
  }
  return failed == 0 ? 0 : 1;
}
