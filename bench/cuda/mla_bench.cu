// Checks the latent kernels against a naive one and times them on the shapes of docs/performance/cuda-mla.md.
//
//   mla_bench [verify] [verify-packed] [verify-e4m3] [verify-few] [time] [packed] [e4m3] [tokens]
//   [sm80] [few] [few-tokens] [few-packed] [sweep | sweep-one] [once] [once-packed] [only=TEXT]
//
// time: the Hopper kernel; few: the kernels for few rows beside it (few-tokens: keys gathered,
// few-packed: the fp8 cache); packed: over the fp8 cache of 656 bytes a token; e4m3: queries in e4m3
// over latents in e4m3; tokens: its keys gathered from pages of one token; sm80: the kernel of older
// cards; sweep: the planner's constants (sweep-one: of single requests); once: a cold launch a shape,
// for a profiler; only: the words behind it time shapes whose names contain the text.
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include <cuda.h>

#include "attention/packed_latent.hpp"
#include "bench/cuda/difference.hpp"
#include "bench/cuda/harness.hpp"
#include "kernels/append_kv/sm80/launch.hpp"
#include "kernels/mla_decode/sm80/launch.hpp"
#include "kernels/mla_decode/sm90/launch.hpp"
#include "plan/latent_work.hpp"

namespace attune::bench {
namespace {

using namespace kernels::mla_decode;
constexpr int kKeys = sm90::kKeys;  ///< of a tile

void expect_ok(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.text().c_str());
  std::exit(1);
}

/// What a token of the cache is.
enum class Cache : std::uint8_t {
  rows,    ///< of numbers as queries have them
  packed,  ///< 656 bytes
  e4m3,    ///< 576 bytes, and queries are e4m3 too
};

struct Problem {
  const char* name;
  int heads = 128;
  std::vector<int> qo;
  std::vector<int> kv;
  bool f16 = false;
  int page = kKeys;
  Cache of = Cache::rows;
};

int bytes_of_token(Cache cache) {
  switch (cache) {
    case Cache::rows: return 2 * kDimQk;
    case Cache::packed: return attention::packed_latent::kTokenBytes;
    case Cache::e4m3: return kDimQk;
  }
  return 0;
}

namespace packed = attention::packed_latent;

/// What a packed cache says, in bf16: a block a token.
__global__ void unpack(const std::uint8_t* tokens, __nv_bfloat16* rows) {
  const std::uint8_t* token = tokens + std::size_t{blockIdx.x} * packed::kTokenBytes;
  const auto* scales = reinterpret_cast<const float*>(token + packed::kScalesAt);
  const auto* rope = reinterpret_cast<const __nv_bfloat16*>(token + packed::kRopeAt);
  for (int d = threadIdx.x; d < kDimQk; d += blockDim.x) {
    __nv_fp8_e4m3 x;
    x.__x = token[d < kDimVo ? d : 0];
    rows[std::size_t{blockIdx.x} * kDimQk + d] =
        d < kDimVo ? __float2bfloat16_rn(static_cast<float>(x) * scales[d / packed::kScaleBlock])
                   : rope[d - kDimVo];
  }
}

/// Numbers to e4m3, which `numbers` then are too.
__global__ void to_e4m3(__nv_bfloat16* numbers, std::uint8_t* bytes, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const __nv_fp8_e4m3 x(numbers[i]);
    bytes[i] = x.__x;
    numbers[i] = __float2bfloat16_rn(static_cast<float>(x));
  }
}

Problem uniform(const char* name, int batch, int kv, int heads, int tokens = 1, bool f16 = false) {
  return {name, heads, std::vector<int>(batch, tokens), std::vector<int>(batch, kv), f16};
}

/// One problem's arrays on the card: pages in random order, NaN in unread slots.
struct Data {
  Problem p;
  std::vector<std::int32_t> qo_indptr{0}, kv_indptr{0}, last, indices;
  Array<std::uint16_t> q, cache, o;
  Array<float> lse;
  Array<std::int32_t> d_indices;
  Array<std::uint8_t> tokens;   ///< of a cache of bytes; `cache` is then what they say
  Array<std::uint8_t> q_bytes;  ///< of queries in e4m3; `q` is then what they say
  BatchView view;

  explicit Data(const Problem& problem, bool poison) : p(problem) {
    for (std::size_t i = 0; i < p.qo.size(); ++i) {
      qo_indptr.push_back(qo_indptr.back() + p.qo[i]);
      const int pages = (p.kv[i] + p.page - 1) / p.page;
      kv_indptr.push_back(kv_indptr.back() + pages);
      last.push_back(pages == 0 ? 0 : p.kv[i] - (pages - 1) * p.page);
    }
    indices.resize(kv_indptr.back());
    std::iota(indices.begin(), indices.end(), 0);
    std::shuffle(indices.begin(), indices.end(), std::mt19937(1));
    const std::size_t pages = std::max<std::size_t>(1, indices.size());
    cache = Array<std::uint16_t>(pages * p.page * kDimQk);
    q = Array<std::uint16_t>(rows() * kDimQk);
    fill(cache, 11);
    fill(q, 12);
    if (p.of == Cache::packed) pack(pages);
    if (p.of == Cache::e4m3) {
      narrow(cache, tokens);
      narrow(q, q_bytes);
    }
    for (std::size_t i = 0; poison && i < p.kv.size(); ++i) {
      if (last[i] == 0) continue;
      const std::size_t page = indices[kv_indptr[i + 1] - 1];
      const std::size_t first = page * p.page + last[i];
      const auto count = static_cast<std::size_t>(p.page - last[i]);
      check(cudaMemset(cache.get() + first * kDimQk, 0xff, count * kDimQk * 2), "poison");
      if (p.of != Cache::rows)
        check(cudaMemset(tokens.get() + first * bytes_of_token(p.of), 0xff,
                         count * bytes_of_token(p.of)),
              "poison");
    }
    o = Array<std::uint16_t>(rows() * kDimVo);
    lse = Array<float>(rows());
    d_indices = Array<std::int32_t>(indices);
    view = {.form = BatchForm::extend,
            .page_size = p.page,
            .qo_indptr = qo_indptr,
            .kv_indptr = kv_indptr,
            .kv_indices = indices,
            .kv_last_page_len = last};
  }
  /// The cache's rows into packed tokens, and back.
  void pack(std::size_t pages) {
    const std::size_t count = pages * p.page;
    tokens = Array<std::uint8_t>(count * packed::kTokenBytes);
    std::vector<std::int64_t> slots(count);
    std::iota(slots.begin(), slots.end(), 0);
    const Array<std::int64_t> d_slots(slots);
    namespace append = kernels::append_kv::sm80;
    expect_ok(
        append::launch_packed({.k = {.in = cache.get(),
                                     .in_token_stride = kDimQk,
                                     .cache = tokens.get(),
                                     .page_stride = std::int64_t{p.page} * packed::kTokenBytes,
                                     .token_stride = packed::kTokenBytes},
                               .page_size = p.page,
                               .num_tokens = static_cast<std::int64_t>(count),
                               .num_slots = static_cast<std::int64_t>(count),
                               .slot_mapping = d_slots.get()},
                              nullptr),
        "append");
    unpack<<<static_cast<unsigned>(count), 128>>>(tokens.get(),
                                                  reinterpret_cast<__nv_bfloat16*>(cache.get()));
    check(cudaDeviceSynchronize(), "pack");
  }
  static void narrow(Array<std::uint16_t>& numbers, Array<std::uint8_t>& bytes) {
    bytes = Array<std::uint8_t>(numbers.size());
    to_e4m3<<<4096, 256>>>(reinterpret_cast<__nv_bfloat16*>(numbers.get()), bytes.get(),
                           numbers.size());
    check(cudaDeviceSynchronize(), "narrow");
  }
  [[nodiscard]] std::size_t rows() const {
    return static_cast<std::size_t>(qo_indptr.back()) * p.heads;
  }
  void fill(Array<std::uint16_t>& a, int seed) {
    if (p.f16)
      fill_normal<<<4096, 256>>>(reinterpret_cast<__half*>(a.get()), a.size(), seed, 1.0f);
    else
      fill_normal<<<4096, 256>>>(reinterpret_cast<__nv_bfloat16*>(a.get()), a.size(), seed, 1.0f);
    check(cudaGetLastError(), "fill");
  }
};

struct Cut {
  int item_tiles = 0;  ///< 0 = what the backend takes
  int least_tiles = 1;
  int workers = 0;  ///< 0 = as many as run at once
  bool older = false;
  int least_rows = 0;  ///< of Hopper's kernels; 0 = what the backend takes
};

struct Launchable {
  sm90::Instance hopper;
  sm80::Instance older_kernel;
  bool older = false;
  Params params;  ///< over rows of 16-bit elements
  const std::uint8_t* tokens = nullptr;
  const std::uint8_t* q_bytes = nullptr;
  Cache of = Cache::rows;
  Grid grid;
  plan::LatentList list;
  Array<std::uint8_t> lists;
  Array<float> partials;
};

int num_sms() {
  int n = 0;
  check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0), "SMs");
  return n;
}

sm90::Instance instance_for(const Problem& p, DType dtype, int rows) {
  switch (p.of) {
    case Cache::rows: return sm90::instance_of(dtype, p.page, rows);
    case Cache::packed: return sm90::packed_instance(sm90::KeySource::packed, rows);
    case Cache::e4m3: return sm90::e4m3_instance(rows);
  }
  return {};
}

Launchable prepare(const Data& d, const Cut& cut) {
  Launchable l;
  l.older = cut.older;
  l.tokens = d.tokens.get();
  l.q_bytes = d.q_bytes.get();
  l.of = d.p.of;
  const DType dtype = d.p.f16 ? DType::f16 : DType::bf16;
  l.older_kernel = sm80::instance_of(dtype, {}, d.p.heads, 227 * 1024);
  const auto resident = sm80::prepare(l.older_kernel);
  expect_ok(resident.ok() ? Status{} : resident.status(), "prepare");
  const int most = num_sms() * (cut.older ? *resident : 1);
  const plan::LatentRules rules{.num_heads = d.p.heads,
                                .meetings = !cut.older,
                                .rows = cut.older ? l.older_kernel.rows : sm90::kRows,
                                .least_rows = cut.older        ? l.older_kernel.rows
                                              : cut.least_rows ? cut.least_rows
                                                               : sm90::least_rows(dtype),
                                .tile = cut.older ? sm80::kKeys : kKeys,
                                .workers = cut.workers > 0 ? cut.workers : most,
                                .item_tiles = cut.item_tiles > 0 ? cut.item_tiles
                                              : cut.older        ? plan::LatentRules{}.item_tiles
                                                                 : sm90::kItemTiles,
                                .least_tiles = cut.least_tiles};
  const plan::LatentShape shape = plan::latent_shape(rules, d.view);
  if (!cut.older) {
    l.hopper = instance_for(d.p, dtype, shape.rows);
    expect_ok(sm90::prepare(l.hopper), "prepare");
  }
  plan::list_latent_work(d.view, rules, shape, l.list);
  const attention::LatentWork work{.num_items = static_cast<std::int32_t>(l.list.items.size()),
                                   .num_merges = static_cast<std::int32_t>(l.list.merges.size()),
                                   .most_parts = l.list.most_parts};
  std::vector<std::uint8_t> image;
  const auto put = [&](const void* from, std::size_t bytes) {
    const std::size_t at = (image.size() + 63) / 64 * 64;
    image.resize(at + bytes);
    if (bytes > 0) std::memcpy(image.data() + at, from, bytes);
    return at;
  };
  const std::size_t at_work = put(&work, sizeof(work));
  const std::size_t at_groups =
      put(l.list.groups.data(), l.list.groups.size() * sizeof(attention::LatentGroup));
  const std::size_t at_items =
      put(l.list.items.data(), l.list.items.size() * sizeof(attention::LatentItem));
  const std::size_t at_merges =
      put(l.list.merges.data(), l.list.merges.size() * sizeof(attention::LatentMerge));
  const std::vector<std::int32_t> arrivals(static_cast<std::size_t>(l.list.meetings * shape.lanes));
  const std::size_t at_arrivals = put(arrivals.data(), arrivals.size() * sizeof(std::int32_t));
  l.lists = Array<std::uint8_t>(image);
  const std::size_t part_rows = std::size_t{1} * l.list.places * shape.lanes * shape.rows;
  l.partials = Array<float>(part_rows * (kDimVo + 2));

  Params& p = l.params;
  p.q = d.q.get();
  p.q_tokens = d.qo_indptr.back();
  p.q_token_stride = std::int64_t{d.p.heads} * kDimQk;
  p.q_head_stride = kDimQk;
  p.k = d.cache.get();
  p.num_pages = std::max<std::int64_t>(1, static_cast<std::int64_t>(d.indices.size()));
  p.k_page_stride = std::int64_t{d.p.page} * kDimQk;
  p.k_token_stride = kDimQk;
  p.o = d.o.get();
  p.o_token_stride = std::int64_t{d.p.heads} * kDimVo;
  p.o_head_stride = kDimVo;
  p.lse = d.lse.get();
  p.lse_token_stride = d.p.heads;
  p.lse_head_stride = 1;
  std::uint8_t* base = l.lists.get();
  p.work = reinterpret_cast<const attention::LatentWork*>(base + at_work);
  p.groups = reinterpret_cast<const attention::LatentGroup*>(base + at_groups);
  p.items = reinterpret_cast<const attention::LatentItem*>(base + at_items);
  p.merges = reinterpret_cast<const attention::LatentMerge*>(base + at_merges);
  p.arrivals = reinterpret_cast<std::int32_t*>(base + at_arrivals);
  p.kv_indices = d.d_indices.get();
  p.partial_o = l.partials.get();
  p.partial_maximum = p.partial_o + part_rows * kDimVo;
  p.partial_sum = p.partial_maximum + part_rows;
  p.lanes = shape.lanes;
  p.num_heads = d.p.heads;
  p.block_rows = shape.rows;
  p.page_size = d.p.page;
  p.heads_per_block = shape.heads_per_block;
  p.tokens_per_block = shape.tokens_per_block;
  p.head_blocks = shape.head_blocks;
  p.scale_log2 = 1.44269504f / std::sqrt(192.0f);
  l.grid = {.blocks = plan::latent_groups(rules, shape) * shape.lanes,
            .merge_blocks = static_cast<int>(std::clamp<std::size_t>(
                l.list.merges.size() * shape.lanes * shape.rows * kMergeSlices, 1,
                static_cast<std::size_t>(kMergeBlocksPerSm * num_sms())))};
  return l;
}

kernels::tensor_map::Encoder encoder() {
  const auto found = kernels::tensor_map::encoder();
  expect_ok(found.ok() ? Status{} : found.status(), "encoder");
  return *found;
}

void start(const Launchable& l, kernels::tensor_map::Encoder encode, cudaStream_t stream) {
  Params params = l.params;
  if (l.of != Cache::rows) {
    params.k = l.tokens;
    params.k_token_stride = bytes_of_token(l.of);
    params.k_page_stride = params.k_token_stride * kKeys;
  }
  if (l.of == Cache::e4m3) params.q = l.q_bytes;
  expect_ok(l.older ? sm80::launch(l.older_kernel, l.grid, params, true, stream)
                    : sm90::launch(l.hopper, encode, l.grid, params, stream),
            "launch");
}

/// One block a (token, head), obvious loops, double precision.
template <class T>
__global__ void naive(const std::int32_t* tables, Params p, double scale, double* o, double* lse) {
  // tables: request of a token, its first token, its end, first entry, kv_len; five a token
  extern __shared__ double logits[];
  const int token = blockIdx.x;
  const int head = blockIdx.y;
  const std::int32_t* t = tables + 5 * token;
  const int keys = t[4] - (t[2] - t[1]) + (token - t[1]) + 1;
  const T* q = static_cast<const T*>(p.q) + token * p.q_token_stride + head * p.q_head_stride;
  const auto key = [&](int j) {
    return static_cast<const T*>(p.k) +
           std::int64_t{p.kv_indices[t[3] + j / p.page_size]} * p.k_page_stride +
           j % p.page_size * p.k_token_stride;
  };
  for (int j = threadIdx.x; j < keys; j += blockDim.x) {
    double s = 0;
    for (int d = 0; d < kDimQk; ++d)
      s += double(static_cast<float>(q[d])) * double(static_cast<float>(key(j)[d]));
    logits[j] = s * scale;
  }
  __syncthreads();
  double m = -INFINITY, l = 0;
  for (int j = 0; j < keys; ++j) m = fmax(m, logits[j]);
  for (int j = 0; j < keys; ++j) l += exp(logits[j] - m);
  const std::int64_t row = std::int64_t{token} * gridDim.y + head;
  for (int d = threadIdx.x; d < kDimVo; d += blockDim.x) {
    double sum = 0;
    for (int j = 0; j < keys; ++j)
      sum += exp(logits[j] - m) * double(static_cast<float>(key(j)[d]));
    o[row * kDimVo + d] = keys > 0 ? sum / l : 0.0;
  }
  if (threadIdx.x == 0) lse[row] = keys > 0 ? m + log(l) : -INFINITY;
}

bool verify(const Problem& problem, const Cut& cut) {
  Data d(problem, true);
  Launchable l = prepare(d, cut);
  std::vector<std::int32_t> tables;
  for (std::size_t i = 0; i < d.p.qo.size(); ++i)
    for (int t = 0; t < d.p.qo[i]; ++t)
      for (int value :
           {static_cast<int>(i), d.qo_indptr[i], d.qo_indptr[i + 1], d.kv_indptr[i], d.p.kv[i]})
        tables.push_back(value);
  Array<std::int32_t> d_tables(tables);
  Array<double> ref_o(d.o.size()), ref_lse(d.lse.size());
  const int longest = *std::max_element(d.p.kv.begin(), d.p.kv.end());
  const std::size_t shared = (longest + 1) * sizeof(double);
  const auto function = d.p.f16 ? naive<__half> : naive<__nv_bfloat16>;
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared)),
        "naive");
  function<<<dim3(d.qo_indptr.back(), d.p.heads), 128, shared>>>(
      d_tables.get(), l.params, 1.0 / std::sqrt(192.0), ref_o.get(), ref_lse.get());
  check(cudaDeviceSynchronize(), "naive");
  const auto want_o = ref_o.download();
  const auto want_lse = ref_lse.download();
  bool good = true;
  const auto encode = encoder();
  std::vector<std::uint16_t> first;
  for (int round = 0; round < 3; ++round) {
    d.o.fill_bytes(0xff);
    d.lse.fill_bytes(0xff);
    start(l, encode, nullptr);
    check(cudaDeviceSynchronize(), problem.name);
    const auto got_o = d.o.download();
    const auto got_lse = d.lse.download();
    const Difference from_wanted = difference(want_o, want_lse, got_o, got_lse, d.p.f16);
    if (round == 0) first = got_o;
    const bool same = first == got_o;
    // Sums of products of bytes are cut to 14 bits (ptx/wgmma_e4m3.cuh).
    const double of_lse = problem.of == Cache::e4m3 ? 1e-2 : 2e-3;
    if (from_wanted.o < 8e-3 && from_wanted.lse < of_lse && same) continue;
    std::printf(
        "WRONG %s (%s, pages of %d, item %d, least %d, workers %d) round %d: o %.2e lse %.2e%s\n",
        problem.name, cut.older ? "sm80" : "sm90", problem.page, cut.item_tiles, cut.least_tiles,
        cut.workers, round, from_wanted.o, from_wanted.lse, same ? "" : " bits differ");
    good = false;
  }
  return good;
}

/// Every way to bring keys, or one kind of cache alone.
int verify_all(const std::vector<Cache>& caches) {
  const std::vector<int> awkward{0, 1, 63, 64, 65, 1000, 33, 4999, 2, 127, 128, 129};
  std::vector<Problem> problems;
  for (bool f16 : {false, true})
    for (int heads : {8, 16, 20, 64, 96, 128})
      for (int tokens : {1, 2, 4})
        problems.push_back(
            {"awkward lengths", heads, std::vector<int>(awkward.size(), tokens), awkward, f16});
  problems.push_back({"mixed with prefill", 16, {300, 1, 0, 2, 1}, {700, 9, 64, 64, 5000}});
  Problem skewed{"one long among many", 16, std::vector<int>(200, 1), std::vector<int>(200, 3)};
  skewed.kv[77] = 20000;
  problems.push_back(skewed);
  problems.push_back(uniform("uniform", 64, 1024, 128));
  int wrong = 0;
  int total = 0;
  for (Problem& p : problems)
    for (int page : {kKeys, 1, 24})
      for (const Cut& cut : {Cut{.older = page == 24}, Cut{.workers = 5, .older = page == 24},
                             Cut{.item_tiles = 1, .least_tiles = 1}}) {
        p.page = page;
        for (const Cache of : caches) {
          if (of != Cache::rows && (p.f16 || page != kKeys)) continue;
          ++total;
          p.of = of;
          wrong += verify(p, cut) ? 0 : 1;
        }
      }
  std::printf("verify: %d of %d wrong\n", wrong, total);
  return wrong;
}

struct Target {
  Problem problem;
  bool flops;  ///< the goal is TFLOP/s; else GB/s, or us below 100
  double goal;
};

/// Small enough for compute-sanitizer: blocks of 64, 16 and 32 rows, cut strips, two lanes, a mask,
/// keys behind the last.
int verify_few() {
  const std::vector<Problem> problems{{"few", 128, {1, 2}, {300, 129}},
                                      {"few, 16 rows", 16, {1, 1, 1}, {300, 1, 129}},
                                      {"few, 32 rows", 16, {2, 1, 2}, {300, 1, 129}}};
  int wrong = 0;
  int total = 0;
  for (Problem p : problems)
    for (const Cache of : {Cache::rows, Cache::packed, Cache::e4m3})
      for (const int page : {kKeys, 1}) {
        if (of != Cache::rows && page != kKeys) continue;
        p.page = page;
        p.of = of;
        ++total;
        wrong += verify(p, {.item_tiles = 1, .least_tiles = 1, .workers = 6}) ? 0 : 1;
      }
  std::printf("verify-few: %d of %d wrong\n", wrong, total);
  return wrong;
}

std::vector<Target> targets() {
  return {{uniform("b128x4k h128", 128, 4096, 128), true, 680},
          {uniform("b128x4k h128 2 tokens", 128, 4096, 128, 2), true, 700},
          {uniform("b128x8k h16", 128, 8192, 16), false, 4150},
          {uniform("b64x16k h16", 64, 16384, 16), false, 4150},
          {uniform("b1x64k h128", 1, 65536, 128), false, 36},
          {uniform("b1x4k h16", 1, 4096, 16), false, 10}};
}

/// What the kernels for few rows are made for.
std::vector<Target> few_targets() {
  return {{uniform("b1x4k h16", 1, 4096, 16), false, 10},
          {uniform("b1x64k h16", 1, 65536, 16), false, 30},
          {uniform("b128x1k h16", 128, 1024, 16), false, 4150},
          {uniform("b128x8k h16", 128, 8192, 16), false, 4150},
          {uniform("b64x16k h16", 64, 16384, 16), false, 4150},
          {uniform("b128x8k h16 2 tokens", 128, 8192, 16, 2), false, 4150}};
}

/// Under sustained load the card lowers its clocks: long kernels start on a card that has rested.
void rest(double flops) {
  if (flops > 3e10) std::this_thread::sleep_for(std::chrono::milliseconds(400));
}

void launch_once(const Target& target) {
  Data d(target.problem, false);
  start(prepare(d, {}), encoder(), nullptr);
  check(cudaDeviceSynchronize(), target.problem.name);
}

std::string only;  ///< names of shapes to time contain this

void time_one(const Target& target, const Cut& cut) {
  if (std::string(target.problem.name).find(only) == std::string::npos) return;
  Data d(target.problem, false);
  Launchable l = prepare(d, cut);
  const auto encode = encoder();
  const auto run = [&](cudaStream_t stream) { start(l, encode, stream); };
  double pairs = 0;
  double bytes = (d.p.of == Cache::e4m3 ? 1.0 : 2.0) * d.q.size() + 2.0 * d.o.size();
  for (std::size_t i = 0; i < d.p.qo.size(); ++i) {
    pairs += d.p.qo[i] * (d.p.kv[i] - (d.p.qo[i] - 1) / 2.0);
    bytes += bytes_of_token(d.p.of) * double(d.p.kv[i]);
  }
  const double flops = 2.0 * (kDimQk + kDimVo) * d.p.heads * pairs;
  rest(flops);
  const double clean = time_cold(run);
  rest(flops);
  const double dirty = time_cold(run, Flush::dirty);
  rest(flops);
  const double graph = time_graph(run);
  std::printf(
      "%-24s %s%s rows %d item %d least %d: clean %8.1f us, dirty %8.1f, graph %8.1f | %6.1f "
      "TFLOP/s "
      "(%4.1f "
      "%% "
      "of 989), %6.0f GB/s (%4.1f %% of 4800) | goal %g %s\n",
      d.p.name, cut.older ? "sm80" : "sm90",
      d.p.of == Cache::packed ? " packed"
      : d.p.of == Cache::e4m3 ? " e4m3"
                              : "",
      l.params.block_rows, cut.item_tiles, cut.least_tiles, clean * 1e6, dirty * 1e6, graph * 1e6,
      flops / clean * 1e-12, flops / clean / 989e12 * 100, bytes / clean * 1e-9,
      bytes / clean / 4800e9 * 100, target.goal,
      target.flops        ? "TFLOP/s"
      : target.goal > 100 ? "GB/s"
                          : "us");
  std::fflush(stdout);
}

}  // namespace
}  // namespace attune::bench

int main(int argc, char** argv) {
  using namespace attune;
  using namespace attune::bench;
  int wrong = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("only=")) only = word.substr(5);
    if (word == "verify") wrong += verify_all({Cache::rows, Cache::packed, Cache::e4m3});
    if (word == "verify-few") wrong += verify_few();
    if (word == "verify-packed") wrong += verify_all({Cache::packed});
    if (word == "verify-e4m3") wrong += verify_all({Cache::e4m3});
    if (word == "time" || word == "sm80" || word == "tokens" || word == "packed" || word == "e4m3")
      for (Target t : targets()) {
        if (word == "tokens") t.problem.page = 1;
        if (word == "packed") t.problem.of = Cache::packed;
        if (word == "e4m3") t.problem.of = Cache::e4m3;
        time_one(t, {.older = word == "sm80"});
      }
    if (word == "few" || word == "few-tokens" || word == "few-packed")
      for (Target t : few_targets())
        for (int rows : {kernels::mla_decode::sm90::kFewRows, kernels::mla_decode::sm90::kRows}) {
          if (word == "few-tokens") t.problem.page = 1;
          if (word == "few-packed") t.problem.of = Cache::packed;
          time_one(t, {.least_rows = rows});
        }
    if (word == "once" || word == "once-packed")
      for (Target t : targets()) {
        if (word == "once-packed") t.problem.of = Cache::packed;
        launch_once(t);
      }
    if (word == "sweep" || word == "sweep-one")
      for (const Target& t : targets())
        for (int item : {1, 2, 3, 5, 8})
          for (int least : {1, 2, 4})
            if (word == "sweep" || t.problem.kv.size() == 1)
              time_one(t, {.item_tiles = item, .least_tiles = least});
  }
  return wrong == 0 ? 0 : 1;
}
