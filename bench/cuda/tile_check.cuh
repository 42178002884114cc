// Holds a Hopper prefill kernel to a plain computation in double precision.
#pragma once

#include "bench/cuda/difference.hpp"
#include "bench/cuda/tile_problem.cuh"

namespace attune::bench {

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
  Array<long long> d_offsets(offsets);
  Array<int> d_rows(row_request), d_qo(p.qo_indptr), d_kv(key_indptr), d_len(s.kv_len);
  Array<double> d_o(static_cast<std::size_t>(rows) * s.qo_heads * s.dvo);
  Array<double> d_lse(static_cast<std::size_t>(rows) * s.qo_heads);
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
  const std::vector<T> first = p.o.download();
  run.launch();
  check(cudaDeviceSynchronize(), instance.name.data());
  const std::vector<T> got = p.o.download();
  const std::vector<float> got_lse = p.lse.download();
  const Difference off = difference(d_o.download(), d_lse.download(), got, got_lse);
  // The bytes behind the output are still poison.
  long bad = 0;
  for (std::size_t i = static_cast<std::size_t>(rows) * s.qo_heads * s.dvo; i < got.size(); ++i)
    bad += std::memcmp(&got[i], "\xff\xff", 2) != 0;
  const bool same = std::memcmp(first.data(), got.data(), first.size() * sizeof(T)) == 0;
  const bool ok = bad == 0 && off.o < 6e-3 && off.lse < 6e-3 && same;
  std::printf("%-4s %-34s %-30s rel %.2e lse %.2e written behind %ld%s\n", ok ? "ok" : "FAIL",
              std::string(instance.name).c_str(), s.name.c_str(), off.o, off.lse, bad,
              same ? "" : " CHANGES");
  return ok;
}

}  // namespace attune::bench
