// Checks, then times, the plain-mma prefill kernel through the whole backend; needs a GPU and
// nothing else.
//
//   attune_mma_prefill_bench check [words]  shapes whose name holds one of the words, by a plain
//                                           computation; unused slots of pages hold NaN
//   attune_mma_prefill_bench time [words]   cases whose name holds one of the words; cold
//                                           second-level cache, median
//   attune_mma_prefill_bench once word      one launch of each such case, for a profiler
//   attune_mma_prefill_bench hopper [words] the same checks and times where flashinfer may take
//                                           Hopper's tiles, for keys that it may copy first
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <type_traits>

#include <attune/batch.hpp>
#include <attune/validate.hpp>

#include "backends/flashinfer/descriptor.hpp"
#include "backends/shared/cuda/paged_attention.hpp"
#include "backends/triton/descriptor.hpp"
#include "bench/cuda/harness.hpp"

namespace attune::bench {
namespace {

template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().text().c_str());
    std::exit(1);
  }
  return std::move(*result);
}
void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.text().c_str());
  std::exit(1);
}

struct Shape {
  std::string name;
  std::vector<int> qo_len, kv_len;
  int qo_heads = 32;
  int kv_heads = 8;
  int dim_qk = 128;
  int dim_vo = 128;
  int page = 64;
  bool hnd = false;
  bool causal = true;
  int window_left = -1;
  float soft_cap = 0.0f;
  bool sinks = false;
  bool alibi = false;
  bool custom_mask = false;
  bool hopper = false;
};

struct Rules {
  int qo_heads, kv_heads, dim_qk, dim_vo, window_left;
  bool causal;
  float soft_cap;
};

/// One block a row: fp32 products of exact inputs, fp64 softmax.
template <class T, class Kv>
__global__ void plain_rows(Rules s, const T* q, const Kv* k, const Kv* v,
                           const std::int64_t* key_row, std::int64_t head_rows, const int* request,
                           const int* qo_indptr, const int* key_indptr, const std::uint8_t* mask,
                           const std::int64_t* mask_indptr, const float* sinks, const float* slopes,
                           double scale, float* o, float* lse) {
  __shared__ double weight[4096];
  __shared__ double top, sum;
  const int row = blockIdx.x, head = blockIdx.y;
  const int n = request[row], r = row - qo_indptr[n];
  const int kv_len = key_indptr[n + 1] - key_indptr[n];
  const int position = kv_len - (qo_indptr[n + 1] - qo_indptr[n]) + r;
  const std::int64_t kv_head = head / (s.qo_heads / s.kv_heads);
  const auto place = [&](int j) { return key_row[key_indptr[n] + j] + kv_head * head_rows; };
  for (int j = threadIdx.x; j < kv_len; j += blockDim.x) {
    bool seen = s.window_left < 0 || j >= position - s.window_left;
    if (mask != nullptr) {
      const std::int64_t bit = std::int64_t(r) * kv_len + j;
      seen = seen && (mask[mask_indptr[n] + bit / 8] >> (bit % 8) & 1) != 0;
    } else {
      seen = seen && (!s.causal || j <= position);
    }
    double x = 0;
    for (int d = 0; d < s.dim_qk; ++d)
      x += double(float(q[(std::int64_t(row) * s.qo_heads + head) * s.dim_qk + d])) *
           double(float(k[place(j) * s.dim_qk + d]));
    x *= scale;
    if (s.soft_cap > 0) x = s.soft_cap * tanh(x / s.soft_cap);
    if (slopes != nullptr) x -= double(slopes[head]) * abs(position - j);
    weight[j] = seen ? x : -INFINITY;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    top = -INFINITY;
    for (int j = 0; j < kv_len; ++j) top = fmax(top, weight[j]);
    sum = 0;
    for (int j = 0; j < kv_len && top > -INFINITY; ++j) sum += weight[j] = exp(weight[j] - top);
  }
  __syncthreads();
  const double total = sum + (sinks != nullptr && sum > 0 ? exp(double(sinks[head]) - top) : 0.0);
  for (int d = threadIdx.x; d < s.dim_vo; d += blockDim.x) {
    double x = 0;
    for (int j = 0; j < kv_len && sum > 0; ++j)
      if (weight[j] > 0) x += weight[j] * double(float(v[place(j) * s.dim_vo + d]));
    o[(std::int64_t(row) * s.qo_heads + head) * s.dim_vo + d] = sum > 0 ? float(x / total) : 0;
  }
  if (threadIdx.x == 0)
    lse[std::int64_t(row) * s.qo_heads + head] = sum > 0 ? float(top + log(sum)) : -INFINITY;
}

/// NaN, in every type, where a row of a cache holds no key.
template <class Kv>
__global__ void poison_rows(const std::uint8_t* used, Kv* rows, int dim) {
  if (used[blockIdx.x] != 0) return;
  auto* bytes = reinterpret_cast<std::uint8_t*>(rows + std::size_t{blockIdx.x} * dim);
  for (std::size_t i = threadIdx.x; i < dim * sizeof(Kv); i += blockDim.x) bytes[i] = 0xff;
}

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return DType::bf16;
  if constexpr (std::is_same_v<T, __half>) return DType::f16;
  if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) return DType::fp8_e4m3;
  if constexpr (std::is_same_v<T, __nv_fp8_e5m2>) return DType::fp8_e5m2;
}

/// A batch, its tensors, a backend and its plan.
template <class T, class Kv>
struct Problem {
  Shape s;
  std::vector<int> qo_indptr{0}, kv_indptr{0}, key_indptr{0}, last, indices, request;
  std::vector<std::int64_t> mask_indptr{0}, key_row;
  std::vector<std::uint8_t> mask;
  std::int64_t pages = 3;
  BatchView view;
  Array<T> q, o;
  Array<Kv> k, v;
  Array<float> lse, sinks, slopes;
  Array<std::uint8_t> workspace;
  std::unique_ptr<Backend> backend;
  PlanHandle plan;
  LayerCall call;
  float scale;

  explicit Problem(const Shape& shape) : s(shape), scale(1.0f / std::sqrt(float(shape.dim_qk))) {
    std::mt19937 random(7);
    for (std::size_t i = 0; i < s.qo_len.size(); ++i) {
      const int n = s.kv_len[i], used = (n + s.page - 1) / s.page;
      qo_indptr.push_back(qo_indptr.back() + s.qo_len[i]);
      kv_indptr.push_back(kv_indptr.back() + used);
      key_indptr.push_back(key_indptr.back() + n);
      last.push_back(used == 0 ? 0 : n - (used - 1) * s.page);
      request.insert(request.end(), std::size_t(s.qo_len[i]), int(i));
      const std::size_t bytes = (std::size_t(s.qo_len[i]) * std::size_t(n) + 7) / 8;
      if (s.custom_mask)
        for (std::size_t b = 0; b < bytes; ++b) mask.push_back(std::uint8_t(random() | random()));
      mask_indptr.push_back(std::int64_t(mask.size()));
    }
    pages += kv_indptr.back();
    // Three pages belong to nobody.
    indices.resize(std::size_t(pages));
    std::iota(indices.begin(), indices.end(), 0);
    std::shuffle(indices.begin(), indices.end(), random);
    indices.resize(std::size_t(pages - 3));
    const std::int64_t token_rows = s.hnd ? 1 : s.kv_heads;
    for (std::size_t i = 0; i < s.kv_len.size(); ++i)
      for (int j = 0; j < s.kv_len[i]; ++j)
        key_row.push_back(std::int64_t(indices[std::size_t(kv_indptr[i] + j / s.page)]) * s.page *
                              s.kv_heads +
                          j % s.page * token_rows);
    const auto tokens = std::size_t(qo_indptr.back());
    q = Array<T>(tokens * s.qo_heads * s.dim_qk);
    o = Array<T>(tokens * s.qo_heads * s.dim_vo);
    lse = Array<float>(tokens * s.qo_heads);
    k = Array<Kv>(std::size_t(pages) * s.page * s.kv_heads * s.dim_qk);
    v = Array<Kv>(std::size_t(pages) * s.page * s.kv_heads * s.dim_vo);
    sinks = Array<float>(std::size_t(s.qo_heads));
    randomise(q, 1);
    randomise(k, 2);
    randomise(v, 3);
    randomise(sinks, 4);
    std::vector<float> slope;
    for (int h = 0; h < s.qo_heads; ++h) slope.push_back(std::exp2(-8.0f * (h + 1) / s.qo_heads));
    slopes = Array<float>(slope);
    make();
  }

  void make() {
    BackendContext context;
    AttentionSpec& spec = context.spec;
    spec.num_qo_heads = s.qo_heads;
    spec.num_kv_heads = s.kv_heads;
    spec.head_dim_qk = s.dim_qk;
    spec.head_dim_vo = s.dim_vo;
    spec.sm_scale = scale;
    spec.causal = s.causal;
    spec.window_left = s.window_left;
    spec.logits_soft_cap = s.soft_cap;
    spec.sinks = s.sinks;
    spec.alibi = s.alibi;
    spec.custom_mask = s.custom_mask;
    spec.q_dtype = spec.o_dtype = dtype_of<T>();
    spec.kv_dtype = dtype_of<Kv>();
    context.device.kind = DeviceKind::cuda;
    context.page_size = s.page;
    context.kv_layout = s.hnd ? KvLayout::hnd : KvLayout::nhd;
    // Only flashinfer's name stands for ALiBi.
    backend = must(backends::shared::make_paged_attention(
        context,
        s.alibi || s.hopper ? backends::flashinfer::kDescriptor : backends::triton::kDescriptor,
        {.hopper = s.hopper}));
    view.form = BatchForm::extend;
    view.page_size = s.page;
    view.qo_indptr = qo_indptr;
    view.kv_indptr = kv_indptr;
    view.kv_indices = indices;
    view.kv_last_page_len = last;
    if (s.custom_mask) {
      view.custom_mask = mask;
      view.custom_mask_indptr = mask_indptr;
    }
    workspace =
        Array<std::uint8_t>(backend->workspace_size(attention::bounds_of(view)).device_bytes);
    plan = must(
        backend->plan(view, {.device = workspace.get(), .device_bytes = workspace.size()}, {}));
    const std::int64_t tokens = qo_indptr.back();
    call.q = TensorView::dense(q.get(), dtype_of<T>(), {tokens, s.qo_heads, s.dim_qk});
    call.o = TensorView::dense(o.get(), dtype_of<T>(), {tokens, s.qo_heads, s.dim_vo});
    call.lse = TensorView::dense(lse.get(), DType::f32, {tokens, s.qo_heads});
    const auto cache = [&](Kv* data, int dim) {
      return s.hnd ? TensorView::dense(data, dtype_of<Kv>(), {pages, s.kv_heads, s.page, dim})
                   : TensorView::dense(data, dtype_of<Kv>(), {pages, s.page, s.kv_heads, dim});
    };
    call.k_cache = cache(k.get(), s.dim_qk);
    call.v_cache = cache(v.get(), s.dim_vo);
    if (s.sinks) call.sinks = sinks.get();
    if (s.alibi) call.alibi_slopes = slopes.get();
  }

  /// NaN in every slot that holds no key.
  void poison() {
    std::vector<std::uint8_t> used(k.size() / std::size_t(s.dim_qk));
    for (const std::int64_t row : key_row)
      for (int h = 0; h < s.kv_heads; ++h) used[std::size_t(row + h * (s.hnd ? s.page : 1))] = 1;
    const Array<std::uint8_t> marks(used);
    poison_rows<<<unsigned(used.size()), 32>>>(marks.get(), k.get(), s.dim_qk);
    poison_rows<<<unsigned(used.size()), 32>>>(marks.get(), v.get(), s.dim_vo);
    check(cudaDeviceSynchronize(), "poison");
    o.fill_bytes(0xff);
    lse.fill_bytes(0xff);
  }

  void run(cudaStream_t stream) { must(backend->run(*plan, call, {.handle = stream})); }

  [[nodiscard]] double flops() const {
    double pairs = 0;
    for (std::size_t i = 0; i < s.qo_len.size(); ++i) {
      const double q_len = s.qo_len[i], n = s.kv_len[i];
      pairs += s.causal ? q_len * (n - q_len) + q_len * q_len / 2 : q_len * n;
    }
    return 2.0 * pairs * s.qo_heads * (s.dim_qk + s.dim_vo);
  }
};

template <class T, class Kv = T>
bool verify(const Shape& s) {
  Problem<T, Kv> p(s);
  p.poison();
  p.run({});
  check(cudaDeviceSynchronize(), s.name.c_str());
  const auto first = p.o.download();
  p.run({});
  check(cudaDeviceSynchronize(), s.name.c_str());
  const auto got = p.o.download();
  const auto got_lse = p.lse.download();
  const Array<std::int64_t> key_row(p.key_row), mask_indptr(p.mask_indptr);
  const Array<int> request(p.request), qo(p.qo_indptr), keys(p.key_indptr);
  const Array<std::uint8_t> mask(p.mask);
  Array<float> o(got.size()), lse(got_lse.size());
  const Rules rules{s.qo_heads,    s.kv_heads, s.dim_qk,  s.dim_vo,
                    s.window_left, s.causal,   s.soft_cap};
  plain_rows<T, Kv><<<dim3(unsigned(p.qo_indptr.back()), unsigned(s.qo_heads)), 128>>>(
      rules, p.q.get(), p.k.get(), p.v.get(), key_row.get(), s.hnd ? s.page : 1, request.get(),
      qo.get(), keys.get(), s.custom_mask ? mask.get() : nullptr, mask_indptr.get(),
      s.sinks ? p.sinks.get() : nullptr, s.alibi ? p.slopes.get() : nullptr, p.scale, o.get(),
      lse.get());
  check(cudaDeviceSynchronize(), "plain computation");
  const auto want = o.download();
  const auto want_lse = lse.download();
  double difference = 0, norm = 1e-30, lse_error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double x = float(got[i]), y = want[i];
    difference += std::isfinite(x) ? (x - y) * (x - y) : 1e9;
    norm += y * y;
  }
  for (std::size_t i = 0; i < got_lse.size(); ++i) {
    if (std::isinf(want_lse[i]) && got_lse[i] == want_lse[i]) continue;
    const double e = std::fabs(got_lse[i] - want_lse[i]);
    lse_error = std::fmax(lse_error, std::isfinite(e) ? e : 1e9);
  }
  const double error = std::sqrt(difference / norm);
  const bool same = std::memcmp(first.data(), got.data(), got.size() * sizeof(T)) == 0;
  const bool ok = error < 6e-3 && lse_error < 6e-3 && same;
  std::printf("%-4s %-8s %3d/%-3d %-34s o %.2e lse %.2e%s\n", ok ? "ok" : "FAIL",
              std::string(attune::name(dtype_of<Kv>())).c_str(), s.dim_qk, s.dim_vo, s.name.c_str(),
              error, lse_error, same ? "" : " CHANGES");
  std::fflush(stdout);
  return ok;
}

std::vector<Shape> awkward(int dim_qk, int dim_vo) {
  std::vector<Shape> out{
      {.name = "causal gqa4 page 16",
       .qo_len = {2, 64, 129, 300, 0, 77},
       .kv_len = {2, 64, 129, 300, 5, 77},
       .page = 16},
      {.name = "full odd page 1",
       .qo_len = {65, 130, 1},
       .kv_len = {257, 3, 500},
       .page = 1,
       .causal = false},
      {.name = "more queries than keys",
       .qo_len = {200, 40, 10},
       .kv_len = {50, 0, 10},
       .kv_heads = 32},
      {.name = "split keys page 3",
       .qo_len = {5, 2},
       .kv_len = {3000, 1777},
       .qo_heads = 6,
       .kv_heads = 2,
       .page = 3},
      {.name = "window 100 sinks",
       .qo_len = {300, 64},
       .kv_len = {700, 64},
       .window_left = 100,
       .sinks = true},
      {.name = "cap 30 hnd",
       .qo_len = {150},
       .kv_len = {333},
       .page = 32,
       .hnd = true,
       .soft_cap = 30},
      {.name = "alibi", .qo_len = {150, 3}, .kv_len = {333, 900}, .alibi = true},
      {.name = "custom mask", .qo_len = {70, 9, 1}, .kv_len = {333, 900, 65}, .custom_mask = true},
      {.name = "gqa 3", .qo_len = {100, 30}, .kv_len = {500, 30}, .qo_heads = 9, .kv_heads = 3},
      {.name = "gqa 71", .qo_len = {40}, .kv_len = {200}, .qo_heads = 71, .kv_heads = 1},
      {.name = "many items",
       .qo_len = std::vector<int>(24, 256),
       .kv_len = std::vector<int>(24, 512)},
  };
  for (Shape& s : out) {
    s.dim_qk = dim_qk;
    s.dim_vo = dim_vo;
  }
  return out;
}

std::vector<Shape> cases() {
  const auto equal = [](Shape s, int requests, int length) {
    s.qo_len = s.kv_len = std::vector<int>(std::size_t(requests), length);
    return s;
  };
  const auto append = [](Shape s, int requests, int qo_len, int kv_len) {
    s.qo_len = std::vector<int>(std::size_t(requests), qo_len);
    s.kv_len = std::vector<int>(std::size_t(requests), kv_len);
    return s;
  };
  Shape mixed{.name = "mixed 1x4k prefill + 63 x 1 over 4k"};
  mixed.qo_len = std::vector<int>(64, 1);
  mixed.kv_len = std::vector<int>(64, 4096);
  mixed.qo_len[0] = 4096;
  return {
      equal({.name = "d128 16x1k"}, 16, 1024),
      equal({.name = "d128 4x4k"}, 4, 4096),
      equal({.name = "d128 1x16k"}, 1, 16384),
      equal({.name = "d64 1x16k", .dim_qk = 64, .dim_vo = 64}, 1, 16384),
      equal({.name = "d256 1x16k", .qo_heads = 8, .dim_qk = 256, .dim_vo = 256}, 1, 16384),
      equal({.name = "d192/128 2x4k", .qo_heads = 32, .kv_heads = 32, .dim_qk = 192}, 2, 4096),
      equal({.name = "d192 4x4k", .dim_qk = 192, .dim_vo = 192}, 4, 4096),
      equal({.name = "d80 4x4k", .dim_qk = 80, .dim_vo = 80}, 4, 4096),
      equal({.name = "d96 4x4k", .dim_qk = 96, .dim_vo = 96}, 4, 4096),
      equal({.name = "d128 mha 4x4k", .qo_heads = 16, .kv_heads = 16}, 4, 4096),
      equal({.name = "d128 page1 4x4k", .page = 1}, 4, 4096),
      equal({.name = "d64 sinks 4x4k", .qo_heads = 64, .dim_qk = 64, .dim_vo = 64, .sinks = true},
            4, 4096),
      equal({.name = "d128 alibi 4x4k", .alibi = true}, 4, 4096),
      equal({.name = "d128 cap 4x4k", .soft_cap = 50}, 4, 4096),
      equal({.name = "d128 mask 4x4k", .causal = false, .custom_mask = true}, 4, 4096),
      append({.name = "append 32x16 over 4k"}, 32, 16, 4096),
      append({.name = "append 8x128 over 8k"}, 8, 128, 8192),
      append({.name = "verify 64x4 over 4k"}, 64, 4, 4096),
      mixed,
  };
}

/// Long enough for keys to be copied first.
std::vector<Shape> copied() {
  const std::vector<int> uneven{1025, 1, 513, 64, 0, 700, 2};
  std::vector<Shape> out{
      {.name = "page 1", .page = 1},
      {.name = "page 5 hnd", .page = 5, .hnd = true},
      {.name = "page 64", .page = 64},
      {.name = "page 16 hnd", .page = 16, .hnd = true},
      {.name = "page 1 cap window", .page = 1, .window_left = 500, .soft_cap = 30},
      {.name = "page 64 full, more queries", .page = 64, .causal = false},
  };
  for (Shape& s : out) {
    s.qo_len = s.kv_len = uneven;
    if (!s.causal) s.kv_len[2] = 5;
    s.kv_len[4] = 77;
    s.qo_heads = 16;
    s.kv_heads = 4;
    s.hopper = true;
  }
  return out;
}

std::vector<Shape> hopper_cases() {
  constexpr const char* kShared[] = {"d128 16x1k",          "d128 4x4k",  "d128 1x16k",
                                     "d64 1x16k",           "d256 1x16k", "d192/128 2x4k",
                                     "append 8x128 over 8k"};
  std::vector<Shape> out;
  for (const Shape& s : cases())
    for (const char* name : kShared)
      if (s.name == name) out.push_back(s);
  for (const int length : {512, 1024, 2048}) {
    Shape one{.name = "d128 1x" + std::to_string(length)};
    one.qo_len = one.kv_len = {length};
    out.push_back(one);
  }
  return out;
}

template <class T, class Kv = T>
void time(const Shape& s) {
  Problem<T, Kv> p(s);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double seconds = time_cold([&](cudaStream_t stream) { p.run(stream); }, Flush::clean, 7);
  std::printf("%-8s %-36s %9.1f us %6.1f TFLOP/s\n",
              std::string(attune::name(dtype_of<Kv>())).c_str(), s.name.c_str(), seconds * 1e6,
              p.flops() / seconds * 1e-12);
  std::fflush(stdout);
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
  int failures = 0;
  if (mode == "check") {
    constexpr int kDims[][2] = {{64, 64},   {80, 80},   {96, 96}, {128, 128}, {192, 128},
                                {192, 192}, {256, 256}, {40, 56}, {72, 128},  {160, 248}};
    for (const auto& [qk, vo] : kDims)
      for (const Shape& s : awkward(qk, vo)) {
        if (!asked(s.name)) continue;
        failures += !verify<__nv_bfloat16>(s);
        failures += !verify<__half>(s);
        if (qk == vo && (qk == 64 || qk == 128 || qk == 256)) {
          failures += !verify<__nv_bfloat16, __nv_fp8_e4m3>(s);
          failures += !verify<__half, __nv_fp8_e5m2>(s);
        }
      }
    std::printf("%d failures\n", failures);
    return failures != 0;
  }
  if (mode == "hopper") {
    for (const Shape& s : copied()) {
      if (!asked("check")) continue;
      failures += !verify<__nv_bfloat16>(s);
      if (s.page == 1) failures += !verify<__half>(s);
      failures += !verify<__nv_bfloat16, __nv_fp8_e4m3>(s);
    }
    for (Shape s : hopper_cases()) {
      s.hopper = true;
      for (const int page : {64, 1}) {
        s.page = page;
        const std::string name = s.name;
        s.name += " pages of " + std::to_string(page);
        if (asked(s.name)) {
          time<__nv_bfloat16>(s);
          if (s.dim_qk <= 128) time<__nv_bfloat16, __nv_fp8_e4m3>(s);
        }
        s.name = name;
      }
    }
    return failures != 0;
  }
  for (const Shape& s : cases()) {
    if (!asked(s.name)) continue;
    if (mode == "once") {
      Problem<__nv_bfloat16, __nv_bfloat16> p(s);
      p.run({});
      check(cudaDeviceSynchronize(), "once");
      continue;
    }
    time<__nv_bfloat16>(s);
    if (s.name == "d128 4x4k") time<__nv_bfloat16, __nv_fp8_e4m3>(s);
  }
  return 0;
}
