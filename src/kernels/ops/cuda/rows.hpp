// What a model does to rows of activations on a GPU (layer kernels): the verbs of model/ops.hpp as
// launches. Everything is memory-bound and small; dtypes are read at run time, uniformly over a
// launch, so that one instance of each kernel serves all.
//
// A launch returns nothing: the caller asks cudaGetLastError once after it.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/tensor.hpp>

#include "kernels/ops/route.hpp"
#include "kernels/ops/rows.hpp"

namespace attune::kernels::ops::cuda {

/// [tokens, width] (heads 1) or [tokens, heads, width]; fp32, bf16 or fp16. Row r = token * heads +
/// head.
struct Rows {
  void* data = nullptr;
  DType dtype = DType::bf16;
  std::int64_t tokens = 0;
  std::int64_t heads = 1;
  std::int64_t width = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

struct Norm {
  bool layer_norm = false;  ///< otherwise RMS
  float weight_offset = 0.0f;
  float eps = 0.0f;
  const float* weight = nullptr;  ///< [width] or none: ones
  const float* bias = nullptr;    ///< [width] or none: zeros
};

/// out = norm(x); with `residual`, residual += scale * x first and that is what is normalised.
void norm(const Rows& x, const Rows* residual, float scale, const Norm& norm, const Rows& out,
          cudaStream_t stream);

void rope_angles(const std::int32_t* positions, const float* inv_freq, std::int64_t tokens,
                 std::int64_t pairs, float factor, float* cos_sin, std::int64_t row,
                 cudaStream_t stream);
void rope(const Rows& x, const float* cos_sin, std::int64_t row, std::int64_t pairs,
          std::int64_t first, bool interleaved, bool inverse, cudaStream_t stream);

struct Gated {
  RowActivation kind = RowActivation::silu;
  bool interleaved = false;
  float limit = 0.0f;
  float alpha = 1.702f;
};
void gated_activation(const Rows& x, const Gated& gated, const Rows& out, cudaStream_t stream);
void activation(const Rows& x, RowActivation kind, const Rows& out, cudaStream_t stream);
void softmax(const Rows& x, const Rows& out, cudaStream_t stream);

/// Joins two attention states over disjoint keys (attention/lse.hpp) in the first: o fp32 [tokens,
/// heads, width], lse fp32 [tokens, heads] with rows `lse_row` apart.
void merge_attention(const Rows& o, float* lse, std::int64_t lse_row, const Rows& more_o,
                     const float* more_lse, std::int64_t more_lse_row, cudaStream_t stream);

void add(const Rows& x, float scale, const Rows& out, cudaStream_t stream);
void scale(const Rows& x, float factor, const Rows& out, cudaStream_t stream);
void multiply(const Rows& x, const Rows& y, const Rows& out, cudaStream_t stream);
/// gate has x's shape, or width 1.
void sigmoid_gate(const Rows& x, const Rows& gate, const Rows& out, cudaStream_t stream);
void soft_cap(const Rows& x, float cap, const Rows& out, cudaStream_t stream);
void convert(const Rows& x, const Rows& out, cudaStream_t stream);
/// out += bias, [width] fp32.
void add_bias(const float* bias, const Rows& out, cudaStream_t stream);

/// out[t] += x[t] * sum of weights[t, j] over ids[t, j] >= first.
void identity_experts(const Rows& x, const std::int32_t* ids, const float* weights,
                      std::int64_t topk, std::int32_t first, const Rows& out, cudaStream_t stream);

/// out[i] = scale * x[rows[i]].
void gather_rows(const Rows& x, const std::int32_t* rows, float scale, const Rows& out,
                 cudaStream_t stream);

/// Pointers are device pointers; workspace is not used. Rows of logits are `logits_row` apart.
void route(const RouteParams& params, std::int64_t logits_row, std::int64_t num_tokens,
           std::int64_t ids_row, std::int64_t weights_row, cudaStream_t stream);

/// The routed experts of a layer, all matrices of one dtype (bf16 or fp32), expert after expert.
struct ExpertWeights {
  DType dtype = DType::bf16;
  int num_experts = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  const void* gate_up = nullptr;        ///< [num_experts, 2 * intermediate, hidden]
  const float* gate_up_bias = nullptr;  ///< [num_experts, 2 * intermediate] or none
  const void* down = nullptr;           ///< [num_experts, hidden, intermediate]
  const float* down_bias = nullptr;     ///< [num_experts, hidden] or none
  Gated activation;
};

/// out[t] += sum_j weights[t, j] * expert ids[t, j] (x[t]). A warp a row of a matrix, token by
/// token: right for any routing, without telling the host which expert got what; bound by the
/// weights a decode step reads. `middle` is workspace: [tokens * topk, 3 * intermediate] fp32.
void experts(const ExpertWeights& w, const Rows& x, const std::int32_t* ids, const float* weights,
             std::int64_t topk, bool scale_input, float* middle, const Rows& out,
             cudaStream_t stream);

}  // namespace attune::kernels::ops::cuda
