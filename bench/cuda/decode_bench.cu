// Checks the CUDA decode kernels against a naive one and times them on the shapes of issue 4.
//
//   decode_bench [verify] [smoke] [time] [goal] [plan] [trace] | one KERNEL ROW
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>

#include <cuda.h>
#include "bench/cuda/harness.hpp"

#include "kernels/decode_plan/sm80/launch.hpp"
#include "kernels/paged_decode/sm80/kernel.cuh"
#include "plan/decode_work.hpp"

namespace attune::bench {
namespace {

using namespace kernels::paged_decode::sm80;

template <class T>
float to_float(T x) {
  return static_cast<float>(x);
}

enum class Kv { bf16, f16, e4m3, e5m2 };
int bytes_of(Kv t) { return t == Kv::bf16 || t == Kv::f16 ? 2 : 1; }

struct Kernel {
  const char* name;
  Kv kv;
  int dim_qk, dim_vo, rows, tile, warps, ctas_per_sm, shared_bytes, stages;
  void (*function)(Params);
  void (*traced)(Params, ulonglong2*);
};

__device__ unsigned long long now_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

/// The kernel with the time each CTA began and ended.
template <class T, class P>
__global__ void __launch_bounds__(P::kThreads, P::kCtasPerSm)
    traced_kernel(const __grid_constant__ Params p, ulonglong2* times) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  const auto begin = now_ns();
  DecodeKernel<T, P>(p, shared).run();
  if (threadIdx.x == 0) times[blockIdx.x] = make_ulonglong2(begin, now_ns());
}

template <class T, class P>
Kernel make(const char* name, Kv kv) {
  constexpr int kShared = P::shared_bytes(228 * 1024);
  Kernel k{name,
           kv,
           P::kDimQk,
           P::kDimVo,
           P::kRows,
           P::kTile,
           P::kWarps,
           P::kCtasPerSm,
           kShared,
           P::kStages,
           paged_decode_kernel<T, P>,
           nullptr};
  check(cudaFuncSetAttribute(k.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
        name);
  int resident = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, k.function, P::kThreads, kShared),
        name);
  if constexpr (P::kDimQk == 128 && P::kRows == 8) {
    k.traced = traced_kernel<T, P>;
    check(cudaFuncSetAttribute(k.traced, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
          name);
  }
  if (resident < P::kCtasPerSm) std::printf("%s: only %d CTAs a SM\n", name, resident);
  return k;
}

struct Problem {
  Kv kv = Kv::bf16;
  int qo_heads = 32, kv_heads = 8, dim_qk = 128, dim_vo = 128, page_size = 16;
  std::vector<int> lens;
  bool hnd = false;
  std::int64_t window_left = -1;
  float soft_cap = 0;
  bool sinks = false, alibi = false, scales = false;
};

/// One problem's arrays on the card. Unread slots hold NaN.
struct Data {
  Problem p;
  std::vector<std::int32_t> qo_indptr{0}, kv_indptr{0}, last_page, indices;
  Array<std::uint16_t> q, o;
  Array<float> lse, sinks, slopes;
  Array<std::uint8_t> k, v;
  Array<std::int32_t> d_indices, d_indptr;
  BatchView view;

  explicit Data(const Problem& problem, bool poison) : p(problem) {
    std::int64_t pages = 0;
    for (int n : p.lens) {
      qo_indptr.push_back(qo_indptr.back() + 1);
      const int mine = (n + p.page_size - 1) / p.page_size;
      kv_indptr.push_back(kv_indptr.back() + mine);
      last_page.push_back(n == 0 ? 0 : n - (mine - 1) * p.page_size);
      pages += mine;
    }
    indices.resize(pages);
    std::iota(indices.begin(), indices.end(), 0);
    std::shuffle(indices.begin(), indices.end(), std::mt19937(1));
    const std::size_t slots = std::max<std::size_t>(1, pages) * p.page_size;
    k = Array<std::uint8_t>(slots * p.kv_heads * p.dim_qk * bytes_of(p.kv));
    v = Array<std::uint8_t>(slots * p.kv_heads * p.dim_vo * bytes_of(p.kv));
    random_kv(k, 11);
    random_kv(v, 12);
    if (poison) poison_unread();
    q = Array<std::uint16_t>(p.lens.size() * p.qo_heads * p.dim_qk);
    fill_normal<<<256, 256>>>(reinterpret_cast<__nv_bfloat16*>(q.get()), q.size(), 13, 1.0f);
    if (p.kv == Kv::f16)
      fill_normal<<<256, 256>>>(reinterpret_cast<__half*>(q.get()), q.size(), 13, 1.0f);
    o = Array<std::uint16_t>(p.lens.size() * p.qo_heads * p.dim_vo);
    lse = Array<float>(p.lens.size() * p.qo_heads);
    o.fill_bytes(0xff);
    lse.fill_bytes(0xff);
    sinks = Array<float>(p.qo_heads);
    slopes = Array<float>(p.qo_heads);
    randomise(sinks, 14);
    std::vector<float> s(p.qo_heads);
    for (int h = 0; h < p.qo_heads; ++h) s[h] = std::exp2(-8.0f * (h + 1) / p.qo_heads) * 0.1f;
    slopes.upload(s);
    d_indices = Array<std::int32_t>(indices);
    d_indptr = Array<std::int32_t>(kv_indptr);
    view.form = BatchForm::decode;
    view.page_size = p.page_size;
    view.qo_indptr = qo_indptr;
    view.kv_indptr = kv_indptr;
    view.kv_indices = indices;
    view.kv_last_page_len = last_page;
  }

  void random_kv(Array<std::uint8_t>& a, int seed) {
    const std::size_t n = a.size() / bytes_of(p.kv);
    switch (p.kv) {
      case Kv::bf16:
        fill_normal<<<4096, 256>>>(reinterpret_cast<__nv_bfloat16*>(a.get()), n, seed, 1.0f);
        break;
      case Kv::f16:
        fill_normal<<<4096, 256>>>(reinterpret_cast<__half*>(a.get()), n, seed, 1.0f);
        break;
      case Kv::e4m3:
        fill_normal<<<4096, 256>>>(reinterpret_cast<__nv_fp8_e4m3*>(a.get()), n, seed, 1.0f);
        break;
      case Kv::e5m2:
        fill_normal<<<4096, 256>>>(reinterpret_cast<__nv_fp8_e5m2*>(a.get()), n, seed, 1.0f);
        break;
    }
  }

  void poison_unread() {
    for (std::size_t i = 0; i < p.lens.size(); ++i) {
      if (last_page[i] == 0 || last_page[i] == p.page_size) continue;
      const std::size_t page = indices[kv_indptr[i + 1] - 1];
      for (auto [array, dim] : {std::pair{&k, p.dim_qk}, std::pair{&v, p.dim_vo}}) {
        const std::size_t row = static_cast<std::size_t>(dim) * bytes_of(p.kv);
        for (int h = 0; h < p.kv_heads; ++h)
          for (int t = last_page[i]; t < p.page_size; ++t) {
            const std::size_t at = p.hnd ? ((page * p.kv_heads + h) * p.page_size + t) * row
                                         : ((page * p.page_size + t) * p.kv_heads + h) * row;
            check(cudaMemset(array->get() + at, 0xff, row), "poison");
          }
      }
    }
  }
};

struct Launchable {
  Params params;
  int grid = 0;
  attention::CutRule rule;
  plan::DecodeRules rules;
  plan::DecodeList list;
  Array<std::uint8_t> workspace;  ///< work, chunks
  Array<float> partial_o;
  Array<float2> partial_state;
  Array<float4> mail_o;
  Array<float2> mail_state;
  Array<std::int32_t> counters;
};

/// How a batch is cut; in tokens.
struct Cut {
  int heads_per_cta = 1;
  int min_tokens = 256;
  int even_tokens = 0;
  int least_even_tokens = 64;
};

int num_sms() {
  int n = 0;
  check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0), "SMs");
  return n;
}

Launchable prepare(const Kernel& kernel, const Data& d, const Cut& cut) {
  Launchable l;
  const int group = d.p.qo_heads / d.p.kv_heads;
  l.grid = num_sms() * kernel.ctas_per_sm;
  const plan::DecodeShape shape =
      plan::decode_shape(d.p.kv_heads, group, kernel.rows, cut.heads_per_cta);
  const int max_parts = std::max(2, 16 * l.grid / shape.units);
  l.rule = {.workers = l.grid,
            .units = shape.units,
            .max_chunks = static_cast<int>(d.p.lens.size()) + max_parts,
            .max_parts = max_parts,
            .min_tiles = std::max(1, cut.min_tokens / kernel.tile),
            .even_tiles = cut.even_tokens / kernel.tile,
            .least_even_tiles = std::max(1, cut.least_even_tokens / kernel.tile)};
  l.rules = {.mask = {.causal = true, .window_left = d.p.window_left}};
  plan::list_decode_work(d.view, l.rules, l.rule, kernel.tile, {}, l.list);
  std::vector<std::uint8_t> image(sizeof(l.list.work) +
                                  l.list.chunks.size() * sizeof(attention::DecodeChunk));
  std::memcpy(image.data(), &l.list.work, sizeof(l.list.work));
  std::memcpy(image.data() + sizeof(l.list.work), l.list.chunks.data(),
              image.size() - sizeof(l.list.work));
  l.workspace = Array<std::uint8_t>(image);
  const std::size_t items = std::size_t{1} * max_parts * shape.units;
  const std::size_t places = items * shape.heads_per_cta * kernel.rows;
  l.partial_o = Array<float>(places * d.p.dim_vo);
  l.partial_state = Array<float2>(places);
  l.counters = Array<std::int32_t>(items + 1);
  l.counters.fill_bytes(0);

  // Handed over where each block has a part at most.
  Params& p = l.params;
  if (static_cast<int>(d.p.lens.size()) < l.grid / shape.units) {
    const std::size_t mail =
        std::size_t{1} * l.grid * shape.heads_per_cta * kernel.rows * d.p.dim_vo / 4;
    l.mail_o = Array<float4>(mail);
    l.mail_state = Array<float2>(mail);
    l.mail_o.fill_bytes(0xff);
    l.mail_state.fill_bytes(0xff);
    p.mail_o = l.mail_o.get();
    p.mail_state = l.mail_state.get();
  }
  p.q = d.q.get();
  p.q_token_stride = std::int64_t{d.p.qo_heads} * d.p.dim_qk;
  p.q_head_stride = d.p.dim_qk;
  p.o = d.o.get();
  p.o_token_stride = std::int64_t{d.p.qo_heads} * d.p.dim_vo;
  p.o_head_stride = d.p.dim_vo;
  p.lse = d.lse.get();
  p.lse_token_stride = d.p.qo_heads;
  p.lse_head_stride = 1;
  p.q_element = p.o_element = d.p.kv == Kv::f16 ? Element::f16 : Element::bf16;
  p.kv.k = d.k.get();
  p.kv.v = d.v.get();
  p.kv.k_page_stride = std::int64_t{d.p.page_size} * d.p.kv_heads * d.p.dim_qk;
  p.kv.v_page_stride = std::int64_t{d.p.page_size} * d.p.kv_heads * d.p.dim_vo;
  p.kv.k_token_stride = d.p.hnd ? d.p.dim_qk : d.p.kv_heads * d.p.dim_qk;
  p.kv.v_token_stride = d.p.hnd ? d.p.dim_vo : d.p.kv_heads * d.p.dim_vo;
  p.kv.k_head_stride = d.p.hnd ? d.p.page_size * d.p.dim_qk : d.p.dim_qk;
  p.kv.v_head_stride = d.p.hnd ? d.p.page_size * d.p.dim_vo : d.p.dim_vo;
  p.kv.indptr = d.d_indptr.get();
  p.kv.indices = d.d_indices.get();
  p.kv.page_size = d.p.page_size;
  p.page = FastDivisor(static_cast<std::uint32_t>(d.p.page_size));
  p.work = reinterpret_cast<const attention::DecodeWork*>(l.workspace.get());
  p.chunks = reinterpret_cast<const attention::DecodeChunk*>(p.work + 1);
  p.listed_before = true;
  p.partial_o = l.partial_o.get();
  p.partial_state = l.partial_state.get();
  p.claims = l.counters.get();
  p.arrivals = l.counters.get() + 1;
  p.num_kv_heads = d.p.kv_heads;
  p.gqa_group_size = group;
  p.row_blocks = FastDivisor(static_cast<std::uint32_t>(shape.row_blocks));
  p.rows = FastDivisor(static_cast<std::uint32_t>(std::min(kernel.rows, group)));
  p.heads_per_cta = shape.heads_per_cta;
  p.units = FastDivisor(static_cast<std::uint32_t>(shape.units));
  p.scale_log2 = kLog2E / std::sqrt(static_cast<float>(d.p.dim_qk)) * (d.p.scales ? 0.75f : 1.0f);
  p.v_scale = d.p.scales ? 1.25f : 1.0f;
  p.soft_cap_log2 = d.p.soft_cap * kLog2E;
  p.sinks = d.p.sinks ? d.sinks.get() : nullptr;
  p.alibi_slopes = d.p.alibi ? d.slopes.get() : nullptr;
  return l;
}

void launch(const Kernel& kernel, const Launchable& l, cudaStream_t stream, bool overlap = false) {
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(l.grid);
  config.blockDim = static_cast<unsigned>(32 * kernel.warps);
  config.dynamicSmemBytes = static_cast<std::size_t>(kernel.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (overlap) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (l.params.mail_o != nullptr) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  check(cudaLaunchKernelEx(&config, kernel.function, l.params), kernel.name);
}

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

bool verify(const Kernel& kernel, Problem problem, const Cut& cut, const char* what) {
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
    double error = 0, norm = 0, lse_error = 0;
    for (std::size_t i = 0; i < want_o.size(); ++i) {
      const float g = kernel.kv == Kv::f16 ? to_float(__ushort_as_half(got_o[i]))
                                           : to_float(__ushort_as_bfloat16(got_o[i]));
      error += (g - want_o[i]) * (g - want_o[i]);
      norm += want_o[i] * want_o[i];
    }
    for (std::size_t i = 0; i < want_lse.size(); ++i) {
      if (std::isinf(want_lse[i]) && got_lse[i] == want_lse[i]) continue;
      lse_error =
          std::max(lse_error, std::isnan(got_lse[i]) ? 1e9 : std::abs(got_lse[i] - want_lse[i]));
    }
    const double relative = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
    if (round == 0) first = got_o;
    const bool same = first == got_o;
    const bool ok = relative < 8e-3 && lse_error < 2e-3 && same;
    if (!ok || std::isnan(relative)) {
      std::printf("WRONG %-24s hpc %d min %d %-10s round %d: o %.2e lse %.2e%s\n", kernel.name,
                  cut.heads_per_cta, cut.min_tokens, what, round, relative, lse_error,
                  same ? "" : " bits differ");
      good = false;
    }
  }
  return good;
}

int verify_all(const std::vector<Kernel>& kernels) {
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

struct Row {
  const char* name;
  Problem problem;
  bool graph;
};

std::vector<int> skewed() {
  std::vector<int> lens(31, 1024);
  lens.push_back(131072);
  return lens;
}

std::vector<Row> rows() {
  return {
      {"32/8 b64x8k p1", {.page_size = 1, .lens = std::vector<int>(64, 8192)}, false},
      {"32/8 b64x8k p16", {.page_size = 16, .lens = std::vector<int>(64, 8192)}, false},
      {"32/8 b64x8k p64", {.page_size = 64, .lens = std::vector<int>(64, 8192)}, false},
      {"32/8 b64x8k p64 hnd",
       {.page_size = 64, .lens = std::vector<int>(64, 8192), .hnd = true},
       false},
      {"64/8 b16x32k p64",
       {.qo_heads = 64, .page_size = 64, .lens = std::vector<int>(16, 32768)},
       false},
      {"32/8 b256x1k p64", {.page_size = 64, .lens = std::vector<int>(256, 1024)}, false},
      {"32/8 b1x32k p64", {.page_size = 64, .lens = {32768}}, false},
      {"32/8 31x1k+128k p64", {.page_size = 64, .lens = skewed()}, false},
      {"32/8 b1x1k p64 graph", {.page_size = 64, .lens = {1024}}, true},
      {"fp8 64/8 b128x2k p64",
       {.kv = Kv::e4m3, .qo_heads = 64, .page_size = 64, .lens = std::vector<int>(128, 2048)},
       false},
      {"fp8 8/1 b64x8k p64",
       {.kv = Kv::e4m3,
        .qo_heads = 8,
        .kv_heads = 1,
        .page_size = 64,
        .lens = std::vector<int>(64, 8192)},
       false},
  };
}

double bytes_moved(const Problem& p) {
  double tokens = 0;
  for (int n : p.lens) tokens += n;
  return tokens * p.kv_heads * (p.dim_qk + p.dim_vo) * bytes_of(p.kv) +
         4.0 * static_cast<double>(p.lens.size()) * p.qo_heads * p.dim_vo;
}

/// How the backend cuts a row (backends/shared/cuda/paged_planner.cpp).
Cut backend_cut(const Problem& p) {
  const int scale = 2 / bytes_of(p.kv);  // its rules are in bytes
  const int rows_a_cta = static_cast<int>(p.lens.size()) * p.kv_heads / num_sms();
  return {bytes_of(p.kv) == 1 && rows_a_cta >= 6 ? 2 : 1, 512 * scale, 4096 * scale, 64 * scale};
}

/// The rows of issue 4 as the backend runs them.
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
int smoke_plans(const Kernel& kernel) {
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
int time_plans(const Kernel& bf16, const Kernel& fp8) {
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
