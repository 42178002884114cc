// A decode batch on the card, and the shapes that are timed.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <attune/batch.hpp>

#include "bench/cuda/harness.hpp"

namespace attune::bench {

enum class Kv { bf16, f16, e4m3, e5m2 };
inline int bytes_of(Kv t) { return t == Kv::bf16 || t == Kv::f16 ? 2 : 1; }

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

struct Row {
  const char* name;
  Problem problem;
  bool graph;
};

inline std::vector<int> skewed() {
  std::vector<int> lens(31, 1024);
  lens.push_back(131072);
  return lens;
}

inline std::vector<Row> rows() {
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

inline double bytes_moved(const Problem& p) {
  double tokens = 0;
  for (int n : p.lens) tokens += n;
  return tokens * p.kv_heads * (p.dim_qk + p.dim_vo) * bytes_of(p.kv) +
         4.0 * static_cast<double>(p.lens.size()) * p.qo_heads * p.dim_vo;
}

}  // namespace attune::bench
