// A batch for one Hopper prefill kernel, without a backend: inputs, schedule, launch.
#pragma once

#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/cuda/harness.hpp"
#include "bench/cuda/tile_shape.hpp"
#include "kernels/ragged_prefill/sm90/launch.hpp"
#include "plan/prefill_schedule.hpp"

namespace attune::bench {

namespace sm90 = kernels::ragged_prefill::sm90;
using sm90::Instance;

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

struct Rng {
  std::mt19937 engine{std::random_device{}()};
};

/// Everything one call needs, on the device.
template <class T, class Kv>
struct Problem {
  Shape shape;
  std::vector<int> qo_indptr{0}, kv_indptr{0}, last_page_len, indices;
  std::int64_t keys = 0, pages = 1, slots = 0;
  Array<T> q;
  Array<Kv> k, v;
  Array<T> o;
  Array<float> lse;
  Array<float> sinks;
  Array<int> device_indices;
  Array<sm90::WorkList> list{std::size_t{1}};

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
    std::vector<Kv> hk = k.download(), hv = v.download();
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
  plan::PrefillSchedule schedule;
  Array<attention::PrefillTile> items;
  kernels::tensor_map::Encoder encoder;

  Run(const Instance& chosen, Problem<T, Kv>& p) : instance(chosen) {
    const Shape& s = p.shape;
    auto ready = sm90::prepare(instance);
    auto found = kernels::tensor_map::encoder();
    if (!ready.ok() || !found.ok()) {
      std::printf("%s%s\n", ready.status().text().c_str(), found.status().text().c_str());
      std::exit(1);
    }
    blocks = ready.value();
    encoder = found.value();
    const int group = s.qo_heads / s.kv_heads;
    params.pack_shift = s.pack;
    const int pack = 1 << s.pack;
    plan::PrefillRules rules{
        .tile_tokens = instance.query_tile / pack,
        .tile_heads = pack,
        .key_tile = instance.key_tile,
        .num_qo_heads = s.qo_heads,
        .num_kv_heads = s.kv_heads,
        .window_left = s.window_left,
        .window_right = s.causal ? 0 : -1,
        .bytes_per_key = static_cast<std::int64_t>(sizeof(Kv)) * (s.dqk + s.dvo)};
    BatchView batch;
    batch.form = BatchForm::extend;
    batch.source = s.page == 0 ? KvSource::ragged : KvSource::paged;
    batch.page_size = s.page == 0 ? 1 : s.page;
    batch.qo_indptr = p.qo_indptr;
    batch.kv_indptr = p.kv_indptr;
    batch.kv_indices = p.indices;
    batch.kv_last_page_len = p.last_page_len;
    plan::schedule_prefill(rules, batch, schedule);
    items = Array<attention::PrefillTile>(schedule.tiles);

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
    params.items = items.get();
    const sm90::WorkList list{
        .num_items = static_cast<std::uint32_t>(schedule.num_items()),
        .num_listed = static_cast<std::uint32_t>(schedule.tiles.size()),
        .heads_together = static_cast<std::uint32_t>(schedule.heads_together)};
    check(cudaMemcpy(p.list.get(), &list, sizeof(list), cudaMemcpyHostToDevice), "list");
    params.list = p.list.get();
    params.kv_indices = s.page == 0 ? nullptr : p.device_indices.get();
    params.page = base::FastDivisor(static_cast<std::uint32_t>(batch.page_size));
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

  void launch() {
    const Status status = sm90::launch(instance, encoder, blocks, operands, params, nullptr);
    if (status.ok()) return;
    std::printf("%s\n", status.text().c_str());
    std::exit(1);
  }
};

}  // namespace attune::bench
