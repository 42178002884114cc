// Holds a paged batch's output to a plain computation in double precision.
#pragma once

#include "bench/cuda/difference.hpp"
#include "bench/cuda/paged_problem.cuh"

namespace attune::bench {

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
  const Difference off = difference(o.download(), lse.download(), got, got_lse);
  const bool same = std::memcmp(first.data(), got.data(), got.size() * sizeof(T)) == 0;
  const bool ok = off.o < 6e-3 && off.lse < 6e-3 && same;
  std::printf("%-4s %-8s %3d/%-3d %-34s o %.2e lse %.2e%s\n", ok ? "ok" : "FAIL",
              std::string(attune::name(dtype_of<Kv>())).c_str(), s.dim_qk, s.dim_vo, s.name.c_str(),
              off.o, off.lse, same ? "" : " CHANGES");
  std::fflush(stdout);
  return ok;
}

}  // namespace attune::bench
