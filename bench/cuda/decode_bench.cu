// Checks the CUDA decode kernels against a naive one and times them on the shapes of
// docs/performance/cuda-decode.md.
//
//   decode_bench [verify] [smoke] [time] [goal] [plan] [trace] | one KERNEL ROW
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime_api.h>

#include "bench/cuda/decode_check.cuh"
#include "bench/cuda/decode_kernel.cuh"
#include "bench/cuda/decode_plans.cuh"

namespace attune::bench {
namespace {

/// Reads everything once: what a kernel of nothing but loads reaches.
__global__ void read_all(const uint4* from, std::size_t n, uint4* to) {
  uint4 acc = make_uint4(0, 0, 0, 0);
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  for (; i + 7 * stride < n; i += 8 * stride) {
    uint4 v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __ldcs(from + i + k * stride);
#pragma unroll
    for (int k = 0; k < 8; ++k) acc.x ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  if (acc.x == 0x12345678u) to[0] = acc;
}

/// The rows as the backend runs them.
void time_goals(const std::vector<Kernel>& kernels) {
  for (const Row& row : rows()) {
    const Data d(row.problem, false);
    for (const Kernel& k : kernels) {
      if (k.kv != row.problem.kv) continue;
      Launchable l = prepare(k, d, backend_cut(row.problem));
      for (const bool listed_before : {true, false}) {
        if (!listed_before && !row.graph) continue;
        l.params.listed_before = listed_before;
        const double seconds = row.graph
                                   ? time_graph([&](cudaStream_t s) { launch(k, l, s, true); })
                                   : time_cold([&](cudaStream_t s) { launch(k, l, s); });
        std::printf("%-20s %-10s %4d items: %7.2f us %5.0f GB/s%s\n", row.name, k.name,
                    l.list.work.num_items, seconds * 1e6, bytes_moved(row.problem) * 1e-9 / seconds,
                    listed_before ? "" : " (lists read after the kernel before)");
      }
    }
    std::fflush(stdout);
  }
}

void time_all(const std::vector<Kernel>& kernels) {
  {
    Array<uint4> big(std::size_t{1} << 27);
    fill_normal<<<4096, 256>>>(reinterpret_cast<__nv_bfloat16*>(big.get()), big.size() * 8, 1,
                               1.0f);
    for (int ctas : {4, 8})
      for (Flush f : {Flush::clean, Flush::dirty}) {
        const double t = time_cold(
            [&](cudaStream_t s) {
              read_all<<<num_sms() * ctas, 256, 0, s>>>(big.get(), big.size(), big.get());
            },
            f);
        std::printf("plain reads, %d CTAs a SM, %s: %.0f GB/s\n", ctas,
                    f == Flush::clean ? "clean" : "dirty", big.size() * 16e-9 / t);
      }
  }
  for (const Row& row : rows()) {
    Data d(row.problem, false);
    const double bytes = bytes_moved(row.problem);
    for (const Kernel& k : kernels) {
      if (k.kv != row.problem.kv || k.dim_qk != row.problem.dim_qk ||
          k.dim_vo != row.problem.dim_vo)
        continue;
      if (k.rows > 8 && row.problem.qo_heads / row.problem.kv_heads <= 8) continue;
      std::vector<Cut> cuts;
      if (row.graph) {
        for (int tokens : {32, 64, 128, 256}) cuts.push_back({1, 512, 4096, tokens});
      } else {
        cuts = {{1, 512, 0}, {1, 1024, 0}, {1, 512, 4096}};
        if (row.problem.kv_heads > 1) cuts.push_back({2, 512, 0});
      }
      for (const Cut& cut : cuts) {
        Launchable l = prepare(k, d, cut);
        const auto go = [&](cudaStream_t s) { launch(k, l, s); };
        std::printf("%-20s %-18s hpc %d min %4d even %4d (%4d items): ", row.name, k.name,
                    cut.heads_per_cta, cut.min_tokens, cut.even_tokens, l.list.work.num_items);
        if (row.graph) {
          const double plain = time_graph(go);
          const double overlap = time_graph([&](cudaStream_t s) { launch(k, l, s, true); });
          std::printf("%7.2f us, overlapped %7.2f us\n", plain * 1e6, overlap * 1e6);
        } else {
          const double clean = time_cold(go, Flush::clean);
          const double dirty = time_cold(go, Flush::dirty);
          std::printf("clean %7.2f us %5.0f GB/s  dirty %7.2f us %5.0f\n", clean * 1e6,
                      bytes * 1e-9 / clean, dirty * 1e6, bytes * 1e-9 / dirty);
        }
      }
    }
    std::fflush(stdout);
  }
}

/// When the CTAs of a run began and ended, in microseconds after the first.
void trace(const std::vector<Kernel>& kernels) {
  for (const Row& row : rows()) {
    if (row.graph || row.problem.hnd) continue;
    Data d(row.problem, false);
    for (const Kernel& k : kernels) {
      if (k.kv != row.problem.kv) continue;
      Launchable l = prepare(k, d, backend_cut(row.problem));
      Array<ulonglong2> times(l.grid);
      times.fill_bytes(0);
      (void)time_cold([&](cudaStream_t s) {
        k.traced<<<l.grid, 32 * k.warps, k.shared_bytes, s>>>(l.params, times.get());
      });
      auto t = times.download();
      std::vector<double> begins, ends;
      unsigned long long first = ~0ull;
      for (auto x : t)
        if (x.x != 0) first = std::min(first, x.x);
      for (auto x : t)
        if (x.x != 0) {
          begins.push_back((x.x - first) * 1e-3);
          ends.push_back((x.y - first) * 1e-3);
        }
      std::sort(begins.begin(), begins.end());
      std::sort(ends.begin(), ends.end());
      const auto at = [](const std::vector<double>& v, double f) {
        return v[static_cast<std::size_t>(f * (v.size() - 1))];
      };
      std::printf(
          "trace %-20s %-18s begin max %.1f; end 0%% %.1f 10%% %.1f 50%% %.1f 90%% %.1f 100%% %.1f "
          "us\n",
          row.name, k.name, begins.back(), ends[0], at(ends, 0.1), at(ends, 0.5), at(ends, 0.9),
          ends.back());
    }
  }
}

/// One launch, for a profiler.
void one(const std::vector<Kernel>& kernels, int kernel, int row) {
  Data d(rows()[row].problem, false);
  Launchable l = prepare(kernels[kernel], d, {});
  launch(kernels[kernel], l, cudaStream_t{});
  check(cudaDeviceSynchronize(), "one");
}

}  // namespace
}  // namespace attune::bench

int main(int argc, char** argv) {
  using namespace attune::bench;
  const auto asked = [&](const char* word) { return asks_for(argc, argv, word); };
  cudaDeviceProp prop{};
  check(cudaGetDeviceProperties(&prop, 0), "device");
  std::printf("%s, %d SMs\n", prop.name, prop.multiProcessorCount);
  using B = __nv_bfloat16;
  using E4 = __nv_fp8_e4m3;
  std::vector<Kernel> kernels{
      make<B, Policy<128, 128, 2, 1, 8, 1, 16>>("bf16 8w x1", Kv::bf16),
      make<B, Policy<128, 128, 2, 1, 4, 1, 16>>("bf16 4w x1", Kv::bf16),
      make<B, Policy<128, 128, 2, 1, 4, 2, 16>>("bf16 4w x2", Kv::bf16),
      make<E4, Policy<128, 128, 1, 1, 8, 1, 32>>("e4m3 8w x1", Kv::e4m3),
      make<E4, Policy<128, 128, 1, 1, 12, 1, 16>>("e4m3 12w x1 t16", Kv::e4m3),
      make<E4, Policy<128, 128, 1, 1, 4, 3, 16>>("e4m3 4w x3 t16", Kv::e4m3),
  };
  std::vector<Kernel> others{
      make<B, Policy<128, 128, 2, 2, 8, 1, 16>>("bf16 rows16", Kv::bf16),
      make<B, Policy<64, 64, 2, 1, 8, 1, 32>>("bf16 d64", Kv::bf16),
      make<B, Policy<64, 64, 2, 2, 8, 1, 32>>("bf16 d64 rows16", Kv::bf16),
      make<B, Policy<80, 80, 2, 1, 8, 1, 16>>("bf16 d80", Kv::bf16),
      make<B, Policy<192, 128, 2, 1, 4, 1, 16>>("bf16 d192/128", Kv::bf16),
      make<B, Policy<256, 256, 2, 1, 4, 1, 16>>("bf16 d256", Kv::bf16),
      make<__half, Policy<128, 128, 2, 1, 8, 1, 16>>("f16", Kv::f16),
      make<E4, Policy<256, 256, 1, 1, 4, 1, 16>>("e4m3 d256", Kv::e4m3),
      make<__nv_fp8_e5m2, Policy<128, 128, 1, 2, 8, 1, 32>>("e5m2 rows16", Kv::e5m2),
  };
  int wrong = 0;
  if (asked("verify")) {
    wrong += verify_all(kernels);
    wrong += verify_all(others);
  }
  if (asked("smoke")) {
    // Pieces in levels, and one a block, handed over.
    for (const Kernel* k : {&kernels[0], &kernels[3], &others[0], &others[3]})
      for (const int even : {0, 1 << 20})
        wrong += !verify(*k, {.qo_heads = 8, .kv_heads = 2, .lens = {0, 1, 17, 300}},
                         {.min_tokens = 16, .even_tokens = even, .least_even_tokens = 16}, "smoke");
    wrong += smoke_plans(kernels[0]);
    std::printf("smoke: %d wrong\n", wrong);
  }
  if (asked("time")) time_all(kernels);
  if (asked("goal")) time_goals({kernels[0], kernels[3]});
  if (asked("plan")) wrong += time_plans(kernels[0], kernels[3]);
  if (asked("trace")) trace({kernels[0], kernels[3]});
  if (argc == 4 && std::strcmp(argv[1], "one") == 0)
    one(kernels, std::atoi(argv[2]), std::atoi(argv[3]));
  return wrong == 0 ? 0 : 1;
}
