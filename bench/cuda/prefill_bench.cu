// Checks, then times, the Hopper prefill kernels; needs a Hopper card and nothing else (a static
// CUDA runtime, no library of ours).
//
//   prefill_bench check [words]    kernels whose name holds one of the words (default all), by a
//                                  plain fp64 computation, on awkward shapes
//   prefill_bench once kernel case one launch, for a profiler
//   prefill_bench smoke [words]    one small launch of each, for compute-sanitizer
//   prefill_bench time [words]     the cases of docs/performance/cuda-prefill.md whose name holds
//                                  one of the words, one head a tile and the heads of a KV head
//                                  side by side; cold second-level cache, median. =WORD: kernels
//                                  whose name holds it only
#include <chrono>
#include <string>
#include <thread>

#include "bench/cuda/prefill_variants.hpp"
#include "bench/cuda/tile_cases.hpp"
#include "bench/cuda/tile_check.cuh"

namespace attune::bench {
namespace {

/// Two requests: one whose tiles end with it, one of more than a tile of rows and two of keys.
template <class T, class Kv>
void smoke(const Instance& c) {
  Problem<T, Kv> p({.name = "smoke",
                    .qo_len = {3, c.query_tile + 9},
                    .kv_len = {17, 2 * c.key_tile + c.query_tile},
                    .qo_heads = 2,
                    .kv_heads = 1,
                    .dqk = c.head_dim_qk,
                    .dvo = c.head_dim_vo,
                    .page = c.boxes ? 16 : 1},
                   64);
  Run<T, Kv> run(c, p);
  run.launch();
  check(cudaDeviceSynchronize(), c.name.data());
  std::printf("smoke %s\n", c.name.data());
}

/// One head a tile, and four side by side.
template <class T, class Kv>
void time_kernel(const Instance& c, const Shape& s) {
  Problem<T, Kv> p(s, 0);
  for (int pack : {0, 2}) {
    if (1 << pack > s.qo_heads / s.kv_heads) continue;
    p.shape.pack = pack;
    Run<T, Kv> run(c, p);
    // After rest, so that every row begins with a cool card.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const double us = time_cold([&](cudaStream_t) { run.launch(); }, Flush::dirty, 9) * 1e6;
    std::printf("%-28s %-7s %-30s pack %d %9.1f us %6.1f TFLOP/s\n", s.name.c_str(),
                s.page == 0   ? "ragged"
                : s.page == 1 ? "page 1"
                              : "page 64",
                std::string(c.name).c_str(), 1 << pack, us, flop(s) / us * 1e-6);
    std::fflush(stdout);
  }
}

/// Calls f with the types of q and o, and of keys and values.
template <class F>
void with_types(const Instance& c, F f) {
  if (c.kv_dtype == DType::fp8_e4m3)
    f.template operator()<__nv_bfloat16, __nv_fp8_e4m3>();
  else if (c.dtype == DType::f16)
    f.template operator()<__half, __half>();
  else
    f.template operator()<__nv_bfloat16, __nv_bfloat16>();
}

bool matches(const Instance& c, const Shape& s) {
  return c.head_dim_qk == s.dqk && c.head_dim_vo == s.dvo && (s.page % 8 == 0 ? c.boxes : c.gather);
}

}  // namespace
}  // namespace attune::bench

int main(int argc, char** argv) {
  using namespace attune::bench;
  using attune::DType;
  const std::string mode = argc > 1 ? argv[1] : "check";
  const auto wanted = [&](std::string_view name) {
    bool yes = argc < 3;
    for (int i = 2; i < argc; ++i) yes = yes || name.find(argv[i]) != std::string_view::npos;
    return yes;
  };
  int failures = 0;
  if (mode == "check") {
    for (const Instance& c : bench_instances()) {
      if (!wanted(c.name)) continue;
      for (const Shape& s : awkward(c)) {
        with_types(c, [&]<class T, class Kv>() { failures += !verify<T, Kv>(c, s); });
        std::fflush(stdout);
      }
    }
    std::printf("%d failures\n", failures);
    return failures != 0;
  }
  if (mode == "smoke") {
    for (const Instance& c : bench_instances())
      if (wanted(c.name)) with_types(c, [&]<class T, class Kv>() { smoke<T, Kv>(c); });
    return 0;
  }
  if (mode == "once") {
    for (const Shape& s : table()) {
      if (s.name.find(argv[3]) == std::string::npos) continue;
      for (const Instance& c : bench_instances()) {
        if (c.name != argv[2] || !matches(c, s)) continue;
        with_types(c, [&]<class T, class Kv>() {
          Problem<T, Kv> p(s, 0);
          Run<T, Kv> run(c, p);
          run.launch();
          check(cudaDeviceSynchronize(), "once");
        });
      }
    }
    return 0;
  }
  const auto kernel_wanted = [&](std::string_view name) {
    bool yes = true;
    for (int i = 2; i < argc; ++i)
      if (argv[i][0] == '=') yes = name.find(argv[i] + 1) != std::string_view::npos;
    return yes;
  };
  for (Shape s : table()) {
    if (!wanted(s.name)) continue;
    for (int page : {0, 64, 1}) {
      s.page = page;
      for (const Instance& c : bench_instances())
        if (matches(c, s) && c.dtype == DType::bf16 && kernel_wanted(c.name))
          with_types(c, [&]<class T, class Kv>() { time_kernel<T, Kv>(c, s); });
    }
  }
  return 0;
}
