// The decode kernels against a naive one, over awkward batches.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "bench/cuda/decode_kernel.cuh"
#include "bench/cuda/difference.hpp"

namespace attune::bench {

/// One block a (request, query head), obvious loops, double precision.
template <class T, class Q>
__global__ void naive(Params p, const std::int32_t* last_page, int dim_qk, int dim_vo,
                      std::int64_t window_left, double* o, double* lse) {
  extern __shared__ double logits[];
  const int i = blockIdx.x;
  const int h = blockIdx.y;
  const int kvh = h / p.gqa_group_size;
  const int entries = p.kv.indptr[i + 1] - p.kv.indptr[i];
  const int len = entries == 0 ? 0 : (entries - 1) * p.kv.page_size + last_page[i];
  const int begin = window_left >= 0 && len - 1 - window_left > 0 ? len - 1 - window_left : 0;
  const Q* q = static_cast<const Q*>(p.q) + i * p.q_token_stride + h * p.q_head_stride;
  double* out = o + (i * gridDim.y + h) * std::int64_t{dim_vo};
  for (int t = begin + threadIdx.x; t < len; t += blockDim.x) {
    const std::int64_t page = p.kv.indices[p.kv.indptr[i] + t / p.kv.page_size];
    const T* k = static_cast<const T*>(p.kv.k) + page * p.kv.k_page_stride +
                 t % p.kv.page_size * p.kv.k_token_stride + kvh * p.kv.k_head_stride;
    double s = 0;
    for (int d = 0; d < dim_qk; ++d)
      s += double(static_cast<float>(q[d])) * double(static_cast<float>(k[d]));
    s *= p.scale_log2 / 1.4426950408889634;
    const double cap = p.soft_cap_log2 / 1.4426950408889634;
    if (cap > 0) s = cap * tanh(s / cap);
    if (p.alibi_slopes) s -= double(p.alibi_slopes[h]) * (len - 1 - t);
    logits[t - begin] = s;
  }
  __syncthreads();
  double m = -INFINITY, l = 0;
  for (int t = 0; t < len - begin; ++t) m = fmax(m, logits[t]);
  for (int t = 0; t < len - begin; ++t) l += exp(logits[t] - m);
  const double sink = p.sinks ? exp(p.sinks[h] - m) : 0.0;
  for (int d = threadIdx.x; d < dim_vo; d += blockDim.x) {
    double acc = 0;
    for (int t = begin; t < len; ++t) {
      const std::int64_t page = p.kv.indices[p.kv.indptr[i] + t / p.kv.page_size];
      const T* v = static_cast<const T*>(p.kv.v) + page * p.kv.v_page_stride +
                   t % p.kv.page_size * p.kv.v_token_stride + kvh * p.kv.v_head_stride;
      acc += exp(logits[t - begin] - m) * double(static_cast<float>(v[d]));
    }
    out[d] = len > begin ? acc / (l + sink) * p.v_scale : 0.0;
  }
  if (threadIdx.x == 0) lse[i * gridDim.y + h] = len > begin ? m + log(l) : -INFINITY;
}

template <class T, class Q>
void run_naive(const Data& d, const Params& params, double* o, double* lse) {
  const int longest = d.p.lens.empty() ? 0 : *std::max_element(d.p.lens.begin(), d.p.lens.end());
  const std::size_t shared = (longest + 1) * sizeof(double);
  check(cudaFuncSetAttribute(naive<T, Q>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared)),
        "naive");
  Array<std::int32_t> last(d.last_page);
  naive<T, Q><<<dim3(d.p.lens.size(), d.p.qo_heads), 128, shared>>>(
      params, last.get(), d.p.dim_qk, d.p.dim_vo, d.p.window_left, o, lse);
  check(cudaDeviceSynchronize(), "naive");
}

inline bool verify(const Kernel& kernel, Problem problem, const Cut& cut, const char* what) {
  problem.kv = kernel.kv;
  problem.dim_qk = kernel.dim_qk;
  problem.dim_vo = kernel.dim_vo;
  Data d(problem, true);
  Launchable l = prepare(kernel, d, cut);
  Array<double> ref_o(d.o.size()), ref_lse(d.lse.size());
  switch (kernel.kv) {
    case Kv::bf16:
      run_naive<__nv_bfloat16, __nv_bfloat16>(d, l.params, ref_o.get(), ref_lse.get());
      break;
    case Kv::f16: run_naive<__half, __half>(d, l.params, ref_o.get(), ref_lse.get()); break;
    case Kv::e4m3:
      run_naive<__nv_fp8_e4m3, __nv_bfloat16>(d, l.params, ref_o.get(), ref_lse.get());
      break;
    case Kv::e5m2:
      run_naive<__nv_fp8_e5m2, __nv_bfloat16>(d, l.params, ref_o.get(), ref_lse.get());
      break;
  }
  const auto want_o = ref_o.download();
  const auto want_lse = ref_lse.download();
  bool good = true;
  std::vector<std::uint16_t> first;
  for (int round = 0; round < 3; ++round) {
    d.o.fill_bytes(0xff);
    d.lse.fill_bytes(0xff);
    launch(kernel, l, cudaStream_t{});
    check(cudaDeviceSynchronize(), kernel.name);
    const auto got_o = d.o.download();
    const auto got_lse = d.lse.download();
    const Difference from_wanted =
        difference(want_o, want_lse, got_o, got_lse, kernel.kv == Kv::f16);
    if (round == 0) first = got_o;
    const bool same = first == got_o;
    const bool ok = from_wanted.o < 8e-3 && from_wanted.lse < 2e-3 && same;
    if (!ok || std::isnan(from_wanted.o)) {
      std::printf("WRONG %-24s hpc %d min %d %-10s round %d: o %.2e lse %.2e%s\n", kernel.name,
                  cut.heads_per_cta, cut.min_tokens, what, round, from_wanted.o, from_wanted.lse,
                  same ? "" : " bits differ");
      good = false;
    }
  }
  return good;
}

inline int verify_all(const std::vector<Kernel>& kernels) {
  int wrong = 0;
  int total = 0;
  const auto run = [&](const Kernel& k, const Problem& p, const Cut& cut, const char* w) {
    ++total;
    wrong += verify(k, p, cut, w) ? 0 : 1;
  };
  const Cut fine{.min_tokens = 16};
  const Cut even{.min_tokens = 64, .even_tokens = 1 << 20};
  const Cut deep{.heads_per_cta = 2, .min_tokens = 16};
  for (const Kernel& k : kernels) {
    std::printf("verify %s\n", k.name);
    std::fflush(stdout);
    const std::vector<int> awkward{0, 1, 15, 16, 17, 63, 64, 65, 0, 1000, 33, 4999, 2, 31, 32, 129};
    run(k, {.lens = awkward}, fine, "awkward");
    run(k, {.page_size = 1, .lens = awkward}, {}, "page1");
    run(k, {.page_size = 64, .lens = awkward}, deep, "page64");
    run(k, {.page_size = 24, .lens = awkward, .hnd = true}, deep, "hnd24");
    run(k, {.page_size = 48, .lens = awkward, .hnd = true, .window_left = 70}, fine, "hnd48");
    run(k, {.qo_heads = 3, .kv_heads = 1, .lens = {5000, 7}}, fine, "3/1");
    run(k, {.qo_heads = 27, .kv_heads = 3, .lens = {77, 500, 3}}, even, "27/3");
    run(k, {.qo_heads = 71, .kv_heads = 1, .lens = {77, 500, 3}}, {.heads_per_cta = 4}, "71/1");
    run(k, {.qo_heads = 8, .kv_heads = 8, .lens = {3000, 40}},
        {.heads_per_cta = 4, .min_tokens = 32}, "8/8");
    run(k, {.lens = awkward, .window_left = 100}, fine, "window");
    run(k, {.lens = awkward, .soft_cap = 5.0f, .sinks = true}, even, "cap+sink");
    run(k, {.lens = awkward, .alibi = true, .scales = true}, fine, "alibi");
    run(k, {.lens = std::vector<int>(300, 1)}, fine, "ones");
    run(k, {.lens = std::vector<int>(100, 1500)}, deep, "many");
  }
  std::printf("verify: %d cases, %d wrong\n", total, wrong);
  return wrong;
}

}  // namespace attune::bench
