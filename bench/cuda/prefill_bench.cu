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
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/ragged_prefill/sm90/launch.hpp"
#include "plan/prefill_schedule.hpp"
#include "prefill_variants.hpp"

namespace {

namespace sm90 = attune::kernels::ragged_prefill::sm90;
using attune::DType;
using sm90::Instance;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
class Device {
 public:
  explicit Device(std::size_t count) : count_(std::max<std::size_t>(count, 1)) {
    check(cudaMalloc(&data_, count_ * sizeof(T)), "cudaMalloc");
  }
  explicit Device(const std::vector<T>& host) : Device(host.size()) {
    if (!host.empty())
      check(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
            "copy");
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { cudaFree(data_); }
  T* get() const { return data_; }
  std::size_t size() const { return count_; }
  std::vector<T> host() const {
    std::vector<T> out(count_);
    check(cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "copy back");
    return out;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

template <class T>
__global__ void fill_random(T* to, std::size_t n, std::uint64_t seed, float amplitude) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    // Two hashes to one normal value (Box and Muller).
    const auto hash = [](std::uint64_t x) {
      x += 0x9E3779B97F4A7C15ull;
      x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
      x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
      return x ^ (x >> 31);
    };
    const float u = (static_cast<float>(hash(seed + 2 * i) >> 40) + 0.5f) * 0x1p-24f;
    const float w = static_cast<float>(hash(seed + 2 * i + 1) >> 40) * 0x1p-24f;
    to[i] = static_cast<T>(amplitude * sqrtf(-2 * logf(u)) * cospif(2 * w));
  }
}

struct Shape {
  std::string name;
  std::vector<int> qo_len, kv_len;
  int qo_heads = 1, kv_heads = 1, dqk = 128, dvo = 128;
  bool causal = true;
  int page = 0;  // 0 = ragged
  bool hnd = false;
  int window_left = -1;
  float soft_cap = 0;
  bool sinks = false;
  float amplitude = 1;
  int pack = 0;
};

/// One warp a row: fp64 throughout, of the numbers as they are stored.
template <class T, class Kv>
__global__ void reference(const T* q, const Kv* k, const Kv* v, const long long* key_offset,
                          const int* row_request, const int* qo_indptr, const int* kv_indptr,
                          const int* kv_len, int heads, int kv_heads, int dqk, int dvo,
                          long long k_head_stride, long long v_head_stride, int causal,
                          int window_left, double scale, double soft_cap, const float* sinks,
                          double* o, double* lse) {
  const int row = blockIdx.x;
  const int head = blockIdx.y;
  const int kv_head = head / (heads / kv_heads);
  const int request = row_request[row];
  const int len = kv_len[request];
  const int qo_len = qo_indptr[request + 1] - qo_indptr[request];
  const int position = len - qo_len + row - qo_indptr[request];
  const int end = causal ? min(len, position + 1) : len;
  const int begin = window_left >= 0 ? max(0, position - window_left) : 0;
  const T* q_row = q + (static_cast<long long>(row) * heads + head) * dqk;
  __shared__ double weight[4096];
  __shared__ double maximum, sum;
  for (int j = begin + threadIdx.x; j < end; j += blockDim.x) {
    const long long at = key_offset[kv_indptr[request] + j];
    const Kv* k_row = k + at * dqk + kv_head * k_head_stride;
    double dot = 0;
    for (int d = 0; d < dqk; ++d)
      dot += static_cast<double>(static_cast<float>(q_row[d])) * static_cast<float>(k_row[d]);
    dot *= scale;
    if (soft_cap > 0) dot = soft_cap * tanh(dot / soft_cap);
    weight[j - begin] = dot;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    maximum = -INFINITY;
    for (int j = begin; j < end; ++j) maximum = fmax(maximum, weight[j - begin]);
    sum = 0;
    for (int j = begin; j < end; ++j) sum += weight[j - begin] = exp(weight[j - begin] - maximum);
  }
  __syncthreads();
  const bool empty = end <= begin;
  double denominator = sum;
  if (sinks != nullptr && !empty) denominator += exp(static_cast<double>(sinks[head]) - maximum);
  for (int d = threadIdx.x; d < dvo; d += blockDim.x) {
    double total = 0;
    for (int j = begin; j < end; ++j) {
      const long long at = key_offset[kv_indptr[request] + j];
      total += weight[j - begin] * static_cast<float>(v[at * dvo + kv_head * v_head_stride + d]);
    }
    o[(static_cast<long long>(row) * heads + head) * dvo + d] = empty ? 0 : total / denominator;
  }
  if (threadIdx.x == 0)
    lse[static_cast<long long>(row) * heads + head] = empty ? -INFINITY : maximum + log(sum);
}

struct Rng {
  std::mt19937 engine{std::random_device{}()};
};

/// Everything one call needs, on the device.
template <class T, class Kv>
struct Problem {
  Shape shape;
  std::vector<int> qo_indptr{0}, kv_indptr{0}, last_page_len, indices;
  std::int64_t keys = 0, pages = 1, slots = 0;
  Device<T> q;
  Device<Kv> k, v;
  Device<T> o;
  Device<float> lse;
  Device<float> sinks;
  Device<int> device_indices;
  Device<sm90::WorkList> list{1};

  static std::vector<int> sums(const std::vector<int>& lengths, int unit) {
    std::vector<int> out{0};
    for (int n : lengths) out.push_back(out.back() + (unit == 0 ? n : (n + unit - 1) / unit));
    return out;
  }
  static std::int64_t count_slots(const Shape& s) {
    const std::vector<int> kv = sums(s.kv_len, s.page);
    // Three pages nobody uses.
    return s.page == 0 ? kv.back() : static_cast<std::int64_t>(kv.back() + 3) * s.page;
  }
  static std::vector<int> shuffled(const Shape& s) {
    if (s.page == 0) return {};
    std::vector<int> ids(static_cast<std::size_t>(sums(s.kv_len, s.page).back()) + 3);
    std::iota(ids.begin(), ids.end(), 0);
    Rng rng;
    std::shuffle(ids.begin(), ids.end(), rng.engine);
    ids.resize(ids.size() - 3);
    return ids;
  }

  explicit Problem(const Shape& s, std::size_t guard)
      : shape(s),
        qo_indptr(sums(s.qo_len, 0)),
        kv_indptr(sums(s.kv_len, s.page)),
        indices(shuffled(s)),
        slots(count_slots(s)),
        q(static_cast<std::size_t>(qo_indptr.back()) * s.qo_heads * s.dqk),
        k(static_cast<std::size_t>(slots) * s.kv_heads * s.dqk),
        v(static_cast<std::size_t>(slots) * s.kv_heads * s.dvo),
        o(static_cast<std::size_t>(qo_indptr.back()) * s.qo_heads * s.dvo + guard),
        lse(static_cast<std::size_t>(qo_indptr.back()) * s.qo_heads + guard),
        sinks(static_cast<std::size_t>(s.qo_heads)),
        device_indices(indices) {
    Rng rng;
    for (int n : s.kv_len)
      last_page_len.push_back(s.page == 0 || n == 0 ? 0 : (n - 1) % s.page + 1);
    pages = s.page == 0 ? 1 : slots / s.page;
    fill_random<<<1024, 256>>>(q.get(), q.size(), rng.engine(), s.amplitude);
    fill_random<<<1024, 256>>>(k.get(), k.size(), rng.engine(), s.amplitude);
    fill_random<<<1024, 256>>>(v.get(), v.size(), rng.engine(), 1.0f);
    fill_random<<<1, 256>>>(sinks.get(), sinks.size(), rng.engine(), 1.0f);
    check(cudaMemset(o.get(), 0xff, o.size() * sizeof(T)), "poison");
    check(cudaMemset(lse.get(), 0xff, lse.size() * sizeof(float)), "poison");
    check(cudaDeviceSynchronize(), "inputs");
  }

  /// The slot of every key, request by request.
  std::vector<long long> key_offsets(std::vector<int>& key_indptr) const {
    std::vector<long long> out;
    key_indptr.assign(1, 0);
    for (std::size_t i = 0; i < shape.kv_len.size(); ++i) {
      for (int j = 0; j < shape.kv_len[i]; ++j) out.push_back(slot(static_cast<int>(i), j));
      key_indptr.push_back(static_cast<int>(out.size()));
    }
    return out;
  }
  /// In rows of the token dimension, all heads of NHD; HND rows count within a page and head.
  long long slot(int request, int j) const {
    if (shape.page == 0) return static_cast<long long>(kv_indptr[request] + j) * shape.kv_heads;
    const long long page = indices[static_cast<std::size_t>(kv_indptr[request] + j / shape.page)];
    return shape.hnd ? page * shape.page * shape.kv_heads + j % shape.page
                     : (page * shape.page + j % shape.page) * shape.kv_heads;
  }

  /// NaN wherever no key lives.
  void poison_unused() {
    if (shape.page == 0) return;
    std::vector<char> used(static_cast<std::size_t>(slots) * shape.kv_heads, 0);
    std::vector<int> unused_indptr;
    for (long long at : key_offsets(unused_indptr))
      for (int h = 0; h < shape.kv_heads; ++h) used[at + h * head_rows()] = 1;
    std::vector<Kv> hk = k.host(), hv = v.host();
    const Kv nan = static_cast<Kv>(std::numeric_limits<float>::quiet_NaN());
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (used[i]) continue;
      std::fill_n(hk.begin() + static_cast<std::ptrdiff_t>(i * shape.dqk), shape.dqk, nan);
      std::fill_n(hv.begin() + static_cast<std::ptrdiff_t>(i * shape.dvo), shape.dvo, nan);
    }
    check(cudaMemcpy(k.get(), hk.data(), hk.size() * sizeof(Kv), cudaMemcpyHostToDevice), "k");
    check(cudaMemcpy(v.get(), hv.data(), hv.size() * sizeof(Kv), cudaMemcpyHostToDevice), "v");
  }
  long long head_rows() const { return shape.hnd && shape.page > 0 ? shape.page : 1; }
};

/// A kernel made ready for a problem.
template <class T, class Kv>
struct Run {
  const Instance& instance;
  int blocks = 0;
  sm90::Operands operands;
  sm90::Params params;
  attune::plan::PrefillSchedule schedule;
  Device<attune::plan::PrefillTile>* items = nullptr;
  attune::kernels::tensor_map::Encoder encoder;

  Run(const Instance& chosen, Problem<T, Kv>& p) : instance(chosen) {
    const Shape& s = p.shape;
    auto ready = sm90::prepare(instance);
    auto found = attune::kernels::tensor_map::encoder();
    if (!ready.ok() || !found.ok()) {
      std::printf("%s%s\n", ready.status().text().c_str(), found.status().text().c_str());
      std::exit(1);
    }
    blocks = ready.value();
    encoder = found.value();
    const int group = s.qo_heads / s.kv_heads;
    params.pack_shift = s.pack;
    const int pack = 1 << s.pack;
    attune::plan::PrefillRules rules{
        .tile_tokens = instance.query_tile / pack,
        .tile_heads = pack,
        .key_tile = instance.key_tile,
        .num_qo_heads = s.qo_heads,
        .num_kv_heads = s.kv_heads,
        .window_left = s.window_left,
        .window_right = s.causal ? 0 : -1,
        .bytes_per_key = static_cast<std::int64_t>(sizeof(Kv)) * (s.dqk + s.dvo)};
    attune::BatchView batch;
    batch.form = attune::BatchForm::extend;
    batch.source = s.page == 0 ? attune::KvSource::ragged : attune::KvSource::paged;
    batch.page_size = s.page == 0 ? 1 : s.page;
    batch.qo_indptr = p.qo_indptr;
    batch.kv_indptr = p.kv_indptr;
    batch.kv_indices = p.indices;
    batch.kv_last_page_len = p.last_page_len;
    attune::plan::schedule_prefill(rules, batch, schedule);
    items = new Device<attune::plan::PrefillTile>(schedule.tiles);

    operands = {.q = p.q.get(),
                .q_tokens = p.qo_indptr.back(),
                .q_token_stride = static_cast<std::int64_t>(s.qo_heads) * s.dqk,
                .q_head_stride = s.dqk,
                .num_qo_heads = s.qo_heads,
                .num_kv_heads = s.kv_heads,
                .num_pages = p.pages,
                .tokens_per_page = s.page == 0 ? p.slots : s.page};
    params.o = p.o.get();
    params.o_token_stride = static_cast<std::int64_t>(s.qo_heads) * s.dvo;
    params.o_head_stride = s.dvo;
    params.lse = p.lse.get();
    params.lse_token_stride = s.qo_heads;
    params.lse_head_stride = 1;
    params.items = reinterpret_cast<const sm90::WorkItem*>(items->get());
    const sm90::WorkList list{
        .num_items = static_cast<std::uint32_t>(schedule.num_items()),
        .num_listed = static_cast<std::uint32_t>(schedule.tiles.size()),
        .heads_together = static_cast<std::uint32_t>(schedule.heads_together)};
    check(cudaMemcpy(p.list.get(), &list, sizeof(list), cudaMemcpyHostToDevice), "list");
    params.list = p.list.get();
    params.kv_indices = s.page == 0 ? nullptr : p.device_indices.get();
    params.page_size = s.page == 0 ? 1 : s.page;
    params.box_rows = sm90::box_rows(instance, s.page == 0 ? p.slots : s.page, s.page == 0);
    params.k = p.k.get();
    params.v = p.v.get();
    const std::int64_t page = s.page == 0 ? 1 : s.page;
    const std::int64_t token_rows = s.hnd ? 1 : s.kv_heads;
    params.k_page_stride = page * s.kv_heads * s.dqk;
    params.k_token_stride = token_rows * s.dqk;
    params.k_head_stride = p.head_rows() * s.dqk;
    params.v_page_stride = page * s.kv_heads * s.dvo;
    params.v_token_stride = token_rows * s.dvo;
    params.v_head_stride = p.head_rows() * s.dvo;
    params.group = group;
    params.scale = 1.0f / std::sqrt(static_cast<float>(s.dqk));
    params.soft_cap = s.soft_cap;
    params.window_left = s.window_left;
    params.window_right = s.causal ? 0 : -1;
    params.sinks = s.sinks ? p.sinks.get() : nullptr;
  }
  ~Run() { delete items; }

  void launch() {
    const attune::Status status =
        sm90::launch(instance, encoder, blocks, operands, params, nullptr);
    if (status.ok()) return;
    std::printf("%s\n", status.text().c_str());
    std::exit(1);
  }
};

template <class T, class Kv>
bool verify(const Instance& instance, const Shape& s) {
  constexpr std::size_t kGuard = 4096;
  Problem<T, Kv> p(s, kGuard);
  p.poison_unused();
  Run<T, Kv> run(instance, p);
  const int rows = p.qo_indptr.back();
  std::vector<int> key_indptr, row_request;
  const std::vector<long long> offsets = p.key_offsets(key_indptr);
  for (std::size_t i = 0; i < s.qo_len.size(); ++i)
    row_request.insert(row_request.end(), static_cast<std::size_t>(s.qo_len[i]),
                       static_cast<int>(i));
  Device<long long> d_offsets(offsets);
  Device<int> d_rows(row_request), d_qo(p.qo_indptr), d_kv(key_indptr), d_len(s.kv_len);
  Device<double> d_o(static_cast<std::size_t>(rows) * s.qo_heads * s.dvo);
  Device<double> d_lse(static_cast<std::size_t>(rows) * s.qo_heads);
  if (rows > 0) {
    reference<<<dim3(static_cast<unsigned>(rows), static_cast<unsigned>(s.qo_heads)), 128>>>(
        p.q.get(), p.k.get(), p.v.get(), d_offsets.get(), d_rows.get(), d_qo.get(), d_kv.get(),
        d_len.get(), s.qo_heads, s.kv_heads, s.dqk, s.dvo, p.head_rows() * s.dqk,
        p.head_rows() * s.dvo, s.causal, s.window_left, 1.0f / std::sqrt(static_cast<float>(s.dqk)),
        s.soft_cap, s.sinks ? p.sinks.get() : nullptr, d_o.get(), d_lse.get());
  }
  check(cudaDeviceSynchronize(), "reference");
  run.launch();
  cudaError_t error = cudaDeviceSynchronize();
  check(error, instance.name.data());
  const std::vector<T> first = p.o.host();
  run.launch();
  check(cudaDeviceSynchronize(), instance.name.data());
  const std::vector<T> got = p.o.host();
  const std::vector<float> got_lse = p.lse.host();
  const std::vector<double> want = d_o.host(), want_lse = d_lse.host();
  double difference = 0, norm = 0, lse_error = 0;
  long bad = 0;
  const std::size_t n = static_cast<std::size_t>(rows) * s.qo_heads * s.dvo;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = static_cast<float>(got[i]);
    if (!std::isfinite(x))
      ++bad;
    else
      difference += (x - want[i]) * (x - want[i]);
    norm += want[i] * want[i];
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows) * s.qo_heads; ++i) {
    const double x = got_lse[i];
    if (std::isinf(want_lse[i]))
      bad += x != want_lse[i];
    else if (!std::isfinite(x))
      ++bad;
    else
      lse_error = std::max(lse_error, std::abs(x - want_lse[i]));
  }
  // The bytes behind the output are still poison.
  for (std::size_t i = n; i < got.size(); ++i) bad += std::memcmp(&got[i], "\xff\xff", 2) != 0;
  const bool same = std::memcmp(first.data(), got.data(), first.size() * sizeof(T)) == 0;
  const double relative = std::sqrt(difference / std::max(norm, 1e-30));
  const bool ok = bad == 0 && relative < 6e-3 && lse_error < 6e-3 && same;
  std::printf("%-4s %-34s %-30s rel %.2e lse %.2e bad %ld%s\n", ok ? "ok" : "FAIL",
              std::string(instance.name).c_str(), s.name.c_str(), relative, lse_error, bad,
              same ? "" : " CHANGES");
  return ok;
}

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

std::vector<Shape> awkward(const Instance& c) {
  const int a = c.head_dim_qk, b = c.head_dim_vo;
  std::vector<Shape> out;
  const auto add = [&](Shape s) {
    s.dqk = a;
    s.dvo = b;
    out.push_back(s);
  };
  const int page = c.gather ? 3 : 16;
  if (c.boxes) {
    add({.name = "ragged causal gqa4",
         .qo_len = {1, 64, 129, 300, 0, 77},
         .kv_len = {1, 64, 129, 300, 5, 77},
         .qo_heads = 8,
         .kv_heads = 2});
    add({.name = "ragged full odd",
         .qo_len = {65, 130, 1},
         .kv_len = {257, 3, 500},
         .qo_heads = 3,
         .kv_heads = 3,
         .causal = false});
    add({.name = "ragged long q, empty kv",
         .qo_len = {200, 40, 10},
         .kv_len = {50, 0, 10},
         .qo_heads = 4,
         .kv_heads = 4});
    add({.name = "ragged large logits",
         .qo_len = {260},
         .kv_len = {600},
         .qo_heads = 4,
         .kv_heads = 2,
         .amplitude = 3});
    add({.name = "ragged packed gqa4",
         .qo_len = {1, 33, 90},
         .kv_len = {70, 33, 500},
         .qo_heads = 8,
         .kv_heads = 2,
         .pack = 2});
    add({.name = "page 64 hnd",
         .qo_len = {100, 128},
         .kv_len = {300, 640},
         .qo_heads = 4,
         .kv_heads = 2,
         .page = 64,
         .hnd = true});
    add({.name = "page 256",
         .qo_len = {100, 128},
         .kv_len = {300, 700},
         .qo_heads = 4,
         .kv_heads = 2,
         .page = 256});
  }
  add({.name = "paged causal",
       .qo_len = {31, 128, 200, 1},
       .kv_len = {100, 128, 777, 33},
       .qo_heads = 6,
       .kv_heads = 2,
       .page = page});
  add({.name = "paged full",
       .qo_len = {31, 128},
       .kv_len = {100, 513},
       .qo_heads = 4,
       .kv_heads = 1,
       .causal = false,
       .page = page});
  add({.name = "paged window",
       .qo_len = {300, 64},
       .kv_len = {700, 64},
       .qo_heads = 4,
       .kv_heads = 2,
       .page = page,
       .window_left = 100});
  add({.name = "paged cap sinks",
       .qo_len = {150},
       .kv_len = {333},
       .qo_heads = 4,
       .kv_heads = 2,
       .page = page,
       .soft_cap = 30,
       .sinks = true,
       .amplitude = 2});
  // More items than a card has multiprocessors: every ring goes round.
  add({.name = "paged, many items",
       .qo_len = {300, 5, 500, 64, 1},
       .kv_len = {300, 700, 901, 64, 90},
       .qo_heads = 32,
       .kv_heads = 8,
       .page = page});
  if (c.gather)
    add({.name = "page 1",
         .qo_len = {150, 3},
         .kv_len = {333, 9},
         .qo_heads = 4,
         .kv_heads = 2,
         .page = 1});
  return out;
}

std::vector<Shape> table() {
  const auto equal = [](const char* name, int requests, int length, int heads, int kv_heads,
                        int dqk, int dvo, bool causal) {
    return Shape{.name = name,
                 .qo_len = std::vector<int>(static_cast<std::size_t>(requests), length),
                 .kv_len = std::vector<int>(static_cast<std::size_t>(requests), length),
                 .qo_heads = heads,
                 .kv_heads = kv_heads,
                 .dqk = dqk,
                 .dvo = dvo,
                 .causal = causal};
  };
  return {equal("causal 32/8 d128 16x1k", 16, 1024, 32, 8, 128, 128, true),
          equal("causal 32/8 d128 4x4k", 4, 4096, 32, 8, 128, 128, true),
          equal("causal 32/8 d128 1x16k", 1, 16384, 32, 8, 128, 128, true),
          equal("full 16/16 d128 1x16k", 1, 16384, 16, 16, 128, 128, false),
          equal("causal 32/32 d64 1x16k", 1, 16384, 32, 32, 64, 64, true),
          equal("causal 8/8 d256 1x16k", 1, 16384, 8, 8, 256, 256, true),
          equal("causal 128/128 192/128 2x8k", 2, 8192, 128, 128, 192, 128, true)};
}

double flop(const Shape& s) {
  double pairs = 0;
  for (std::size_t i = 0; i < s.qo_len.size(); ++i)
    pairs += static_cast<double>(s.qo_len[i]) * s.kv_len[i] * (s.causal ? 0.5 : 1.0);
  return 2.0 * pairs * s.qo_heads * (s.dqk + s.dvo);
}

/// After half a second of rest, so that every row begins with a cool card.
template <class T, class Kv>
double median_us(Run<T, Kv>& run, Device<char>& flush, int repeats) {
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < repeats + 2; ++i) {
    check(cudaMemsetAsync(flush.get(), 0, flush.size()), "flush");
    check(cudaEventRecord(begin), "record");
    run.launch();
    check(cudaEventRecord(end), "record");
    check(cudaEventSynchronize(end), run.instance.name.data());
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    if (i >= 2) times.push_back(ms);
  }
  check(cudaEventDestroy(begin), "event");
  check(cudaEventDestroy(end), "event");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e3;
}

/// One head a tile, and four side by side.
template <class T, class Kv>
void time_kernel(const Instance& c, const Shape& s, Device<char>& flush) {
  Problem<T, Kv> p(s, 0);
  for (int pack : {0, 2}) {
    if (1 << pack > s.qo_heads / s.kv_heads) continue;
    p.shape.pack = pack;
    Run<T, Kv> run(c, p);
    const double us = median_us(run, flush, 9);
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

int main(int argc, char** argv) {
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
  Device<char> flush(std::size_t{256} << 20);
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
          with_types(c, [&]<class T, class Kv>() { time_kernel<T, Kv>(c, s, flush); });
    }
  }
  return 0;
}
