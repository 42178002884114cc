// Checks, then times, prefill over pages through the whole backend; needs a GPU and nothing else.
//
//   attune_mma_prefill_bench check [words]  the plain-mma kernel over shapes whose name holds one
//                                           of the words, by a plain computation; unused slots of
//                                           pages hold NaN
//   attune_mma_prefill_bench time [words]   it over cases whose name holds one of the words; cold
//                                           second-level cache, median
//   attune_mma_prefill_bench once word      one launch of each such case, for a profiler
//   attune_mma_prefill_bench hopper [words] checks and times of flashinfer, which may take Hopper's
//                                           tiles and copy keys first
//   attune_mma_prefill_bench choice [words] times of every way flashinfer has, beside what it takes
#include <chrono>
#include <thread>

#include "bench/cuda/mma_prefill_cases.hpp"
#include "bench/cuda/paged_check.cuh"

namespace attune::bench {
namespace {

using backends::shared::hopper::Keys;
using Bf16 = __nv_bfloat16;
using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;

template <class T, class Kv>
double seconds_of(Problem<T, Kv>& p, int rest_ms, int repeats) {
  std::this_thread::sleep_for(std::chrono::milliseconds(rest_ms));
  return time_cold([&](cudaStream_t stream) { p.run(stream); }, Flush::clean, repeats);
}

template <class T, class Kv = T>
void time(const Shape& s) {
  Problem<T, Kv> p(s);
  const double seconds = seconds_of(p, 300, 7);
  std::printf("%-8s %-36s %9.1f us %6.1f TFLOP/s\n",
              std::string(attune::name(dtype_of<Kv>())).c_str(), s.name.c_str(), seconds * 1e6,
              p.flops() / seconds * 1e-12);
  std::fflush(stdout);
}

/// Hopper's tiles over keys as they are stored, and copied; the plain kernel; the choice. Short
/// rests: the ways are compared with each other only.
template <class T, class Kv = T>
void time_ways(Shape s) {
  Problem<T, Kv> p(s);
  std::printf("%-5s q %-8s %-32s", std::string(attune::name(dtype_of<T>())).c_str(),
              std::string(attune::name(dtype_of<Kv>())).c_str(), s.name.c_str());
  const auto way = [&](const char* name, bool hopper, Keys keys) {
    p.s.hopper = hopper;
    p.s.keys = keys;
    p.make();
    std::printf("  %s %8.1f", name, seconds_of(p, 60, 5) * 1e6);
  };
  way("stored", true, Keys::as_stored);
  way("copied", true, Keys::copied);
  way("plain", false, Keys::by_cost);
  way("chosen", true, Keys::by_cost);
  std::printf(" us\n");
  std::fflush(stdout);
}

template <class F>
void with_key_types(const Shape& s, F f) {
  f.template operator()<Bf16, Bf16>();
  if (s.dim_qk != s.dim_vo) return;
  f.template operator()<Bf16, E4m3>();
  f.template operator()<Bf16, E5m2>();
  f.template operator()<__half, E4m3>();
}

int check_all(const auto& asked) {
  constexpr int kDims[][2] = {{64, 64},   {80, 80},   {96, 96}, {128, 128}, {192, 128},
                              {192, 192}, {256, 256}, {40, 56}, {72, 128},  {160, 248}};
  int failures = 0;
  for (const auto& [qk, vo] : kDims)
    for (const Shape& s : awkward(qk, vo)) {
      if (!asked(s.name)) continue;
      failures += !verify<Bf16>(s);
      failures += !verify<__half>(s);
      if (qk == vo && (qk == 64 || qk == 128 || qk == 256)) {
        failures += !verify<Bf16, E4m3>(s);
        failures += !verify<__half, E5m2>(s);
      }
    }
  std::printf("%d failures\n", failures);
  return failures;
}

int check_hopper(const auto& asked) {
  constexpr int kDims[][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};
  int failures = 0;
  for (const auto& [qk, vo] : kDims)
    for (Shape s : copied(qk, vo)) {
      if (!asked("check " + s.name)) continue;
      for (const Keys keys : {Keys::by_cost, Keys::copied}) {
        s.keys = keys;
        if (qk == vo) failures += !verify<__half>(s);
        with_key_types(s, [&]<class T, class Kv>() { failures += !verify<T, Kv>(s); });
      }
    }
  std::printf("%d failures\n", failures);
  return failures;
}

void for_hopper_cases(const auto& asked, const auto& visit) {
  for (Shape s : hopper_cases()) {
    const std::string name = s.name;
    for (const int page : {64, 1}) {
      s.hopper = true;
      s.page = page;
      s.name = name + " pages of " + std::to_string(page);
      if (asked(s.name)) visit(s);
    }
  }
}

}  // namespace
}  // namespace attune::bench

int main(int argc, char** argv) {
  using namespace attune::bench;
  const std::string mode = argc > 1 ? argv[1] : "check";
  const auto asked = [&](const std::string& name) {
    bool yes = argc < 3;
    for (int i = 2; i < argc; ++i) yes = yes || name.find(argv[i]) != std::string::npos;
    return yes;
  };
  if (mode == "check") return check_all(asked) != 0;
  if (mode == "hopper") {
    const int failures = check_hopper(asked);
    for_hopper_cases(asked, [](const Shape& s) {
      with_key_types(s, [&]<class T, class Kv>() { time<T, Kv>(s); });
    });
    return failures != 0;
  }
  if (mode == "choice") {
    for_hopper_cases(asked, [](const Shape& s) {
      with_key_types(s, [&]<class T, class Kv>() { time_ways<T, Kv>(s); });
    });
    return 0;
  }
  for (const Shape& s : cases()) {
    if (!asked(s.name)) continue;
    if (mode == "once") {
      Problem<Bf16, Bf16> p(s);
      p.run({});
      check(cudaDeviceSynchronize(), "once");
      continue;
    }
    time<Bf16>(s);
    if (s.name == "d128 4x4k") time<Bf16, E4m3>(s);
  }
  return 0;
}
