// Hyper-connections on a GPU (layer kernels): verbs of model/ops.hpp as launches, all of fp32.
// A launch returns nothing: the caller asks cudaGetLastError once after it.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace attune::kernels::ops::cuda {

inline constexpr int kMostStreams = 16;

struct Hyper {
  int streams = 0;
  int iterations = 0;
  float eps = 0.0f;
  const float* scale = nullptr;
  const float* base = nullptr;
};

/// Rows of numbers, `stride` apart.
struct HyperRows {
  float* data = nullptr;
  std::int64_t stride = 0;
};

/// In place: pre, post and comb of num_rows rows, or pre alone.
void hyper_weights(const Hyper& hyper, bool pre_alone, const HyperRows& weights,
                   std::int64_t num_rows, cudaStream_t stream);
/// out [num_rows, width] = sum over i of pre[i] * stream i.
void hyper_collapse(const HyperRows& streams, const HyperRows& pre, int num_streams,
                    const HyperRows& out, std::int64_t num_rows, std::int64_t width,
                    cudaStream_t stream);
/// stream k = post[k] * x + sum over i of comb[i, k] * stream i.
void hyper_expand(const HyperRows& x, const HyperRows& post, const HyperRows& comb, int num_streams,
                  const HyperRows& streams, std::int64_t num_rows, std::int64_t width,
                  cudaStream_t stream);

}  // namespace attune::kernels::ops::cuda
