// Decode plans made on the device beside those of the host: the same lists, and the time of each.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "bench/cuda/decode_kernel.cuh"
#include "kernels/decode_plan/sm80/launch.hpp"

namespace attune::bench {

namespace on_device = kernels::decode_plan::sm80;

/// The list of `l`, made on the device.
struct DevicePlan {
  Array<std::int32_t> last_page;
  Array<on_device::Row> scratch;
  Array<std::uint8_t> image;
  on_device::Params params;

  DevicePlan(const Kernel& kernel, const Data& d, const Launchable& l)
      : last_page(d.last_page),
        scratch(static_cast<std::size_t>(
            on_device::rows_wanted(static_cast<std::int64_t>(d.p.lens.size())))),
        image(l.workspace.size()) {
    image.fill_bytes(0);
    params = {.kv_indptr = d.d_indptr.get(),
              .kv_last_page_len = last_page.get(),
              .num_requests = static_cast<std::int32_t>(d.p.lens.size()),
              .page_size = d.p.page_size,
              .max_kv_entries = d.kv_indptr.back(),
              .max_kv_len = *std::max_element(d.p.lens.begin(), d.p.lens.end()),
              .mask = l.rules.mask,
              .rule = l.rule,
              .tile = FastDivisor(static_cast<std::uint32_t>(kernel.tile)),
              .work = reinterpret_cast<attention::DecodeWork*>(image.get()),
              .rows = scratch.get()};
    params.chunks = reinterpret_cast<attention::DecodeChunk*>(params.work + 1);
  }
  void launch(cudaStream_t stream) const {
    if (const Status made = on_device::launch(params, stream); !made.ok())
      std::printf("%s\n", made.text().c_str());
  }
  [[nodiscard]] bool same_as(const Launchable& l) const {
    launch({});
    check(cudaDeviceSynchronize(), "decode_plan");
    const std::size_t used =
        sizeof(attention::DecodeWork) + l.list.work.num_chunks * sizeof(attention::DecodeChunk);
    return std::memcmp(image.download().data(), l.workspace.download().data(), used) == 0;
  }
};

/// Lists of each kind, for a sanitizer: even pieces, levels, places that do not suffice, many rows.
inline int smoke_plans(const Kernel& kernel) {
  std::vector<int> skewed(40, 100);
  skewed[7] = 20000;
  int wrong = 0;
  for (const auto& lens :
       {std::vector<int>{3000, 1, 0}, skewed, std::vector<int>(600, 90), std::vector<int>(9, 0)})
    for (const Cut& cut : {Cut{.min_tokens = 16}, Cut{.min_tokens = 64, .even_tokens = 1 << 20}}) {
      const Data d({.qo_heads = 8, .kv_heads = 2, .lens = lens}, false);
      const Launchable l = prepare(kernel, d, cut);
      wrong += DevicePlan(kernel, d, l).same_as(l) ? 0 : 1;
    }
  return wrong;
}

/// Plans of the shapes, on the host and on the device: the same list, the time of each, and what a
/// recorded step pays for its plan.
inline int time_plans(const Kernel& bf16, const Kernel& fp8) {
  int wrong = 0;
  std::vector<Row> shapes = rows();
  for (const int n : {512, 2048})
    shapes.push_back({n == 512 ? "32/8 b512x1k p64" : "32/8 b2048x256 p64",
                      {.page_size = 64, .lens = std::vector<int>(n, n == 512 ? 1024 : 256)},
                      false});
  for (const Row& row : shapes) {
    if (row.problem.hnd) continue;
    const Kernel& kernel = row.problem.kv == Kv::bf16 ? bf16 : fp8;
    const Data d(row.problem, false);
    Launchable l = prepare(kernel, d, backend_cut(row.problem));
    const DevicePlan planned(kernel, d, l);
    const auto plan = [&](cudaStream_t s) { planned.launch(s); };
    const bool same = planned.same_as(l);
    wrong += same ? 0 : 1;

    std::vector<double> us;
    for (int i = 0; i < 100; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      plan::list_decode_work(d.view, l.rules, l.rule, kernel.tile, {}, l.list);
      us.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
              .count());
    }
    std::sort(us.begin(), us.end());
    // A layer's run is settled while the kernel before it ends, as in the engine.
    const auto step = [&](bool plans, int layers) {
      return time_graph(
          [&](cudaStream_t s) {
            if (plans) plan(s);
            for (int i = 0; i < layers; ++i) launch(kernel, l, s, true);
          },
          4);
    };
    std::printf("plan %-20s %5d chunks, %s: host %6.2f us, device %5.2f us", row.name,
                l.list.work.num_chunks, same ? "same lists" : "LISTS DIFFER", us[us.size() / 2],
                time_graph(plan) * 1e6);
    if (row.graph || row.problem.lens.size() >= 256)
      std::printf("; step of 8 layers %7.2f us, %7.2f planned on the device", step(false, 8) * 1e6,
                  step(true, 8) * 1e6);
    std::printf("\n");
    std::fflush(stdout);
  }
  return wrong;
}

}  // namespace attune::bench
