// Routing and routed experts on a GPU: nothing here tells the host which expert got what.
#include <cmath>

#include "kernels/ops/cuda/elements.cuh"
#include "kernels/ops/cuda/rows.hpp"

namespace attune::kernels::ops::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kMaxGroups = 64;

/// One warp a token; scores and choice in shared memory. The rule is kernels/ops/route.hpp's.
__global__ void route_kernel(RouteParams p, std::int64_t logits_row, std::int64_t ids_row,
                             std::int64_t weights_row) {
  float* scores = reinterpret_cast<float*>(ptx::dynamic_shared<128>());
  float* choice = scores + p.num_experts;
  __shared__ float groups[kMaxGroups];
  const std::int64_t token = blockIdx.x;
  const float* logits = p.logits + token * logits_row;
  const int lane = static_cast<int>(threadIdx.x);

  float largest = -INFINITY;
  for (int e = lane; e < p.num_experts; e += 32) largest = fmaxf(largest, logits[e]);
  largest = warp_max(largest);
  float sum = 0.0f;
  for (int e = lane; e < p.num_experts; e += 32) {
    const float x = logits[e];
    float score = x;
    if (!p.softmax_after_topk) {
      if (p.score == ExpertScore::softmax) score = expf(x - largest);
      if (p.score == ExpertScore::sigmoid) score = 1.0f / (1.0f + expf(-x));
      if (p.score == ExpertScore::sqrt_softplus) score = sqrtf(x > 20.0f ? x : log1pf(expf(x)));
    }
    scores[e] = score;
    sum += score;
  }
  sum = warp_sum(sum);
  __syncwarp();
  for (int e = lane; e < p.num_experts; e += 32) {
    if (!p.softmax_after_topk && p.score == ExpertScore::softmax) scores[e] /= sum;
    choice[e] = scores[e] + (p.bias == nullptr ? 0.0f : p.bias[e]);
  }
  __syncwarp();

  if (p.num_groups > 1 && p.topk_groups < p.num_groups) {
    const int size = p.num_experts / p.num_groups;
    for (int g = lane; g < p.num_groups; g += 32) {
      float best = -INFINITY;
      float second = -INFINITY;
      for (int i = 0; i < size; ++i) {
        const float x = choice[g * size + i];
        if (x > best) {
          second = best;
          best = x;
        } else {
          second = fmaxf(second, x);
        }
      }
      groups[g] = p.score == ExpertScore::softmax || size == 1 ? best : best + second;
    }
    __syncwarp();
    for (int g = lane; g < p.num_groups; g += 32) {
      int beaten_by = 0;
      for (int h = 0; h < p.num_groups; ++h)
        beaten_by += groups[h] > groups[g] || (groups[h] == groups[g] && h < g) ? 1 : 0;
      if (beaten_by >= p.topk_groups)
        for (int i = 0; i < size; ++i) choice[g * size + i] = -INFINITY;
    }
    __syncwarp();
  }

  std::int32_t* ids = p.ids + token * ids_row;
  float* weights = p.weights + token * weights_row;
  float total = 0.0f;
  float first_score = 0.0f;
  for (int j = 0; j < p.topk; ++j) {
    float best = -INFINITY;
    int index = p.num_experts;
    for (int e = lane; e < p.num_experts; e += 32) {
      if (choice[e] > best || index == p.num_experts) {
        best = choice[e];
        index = e;
      }
    }
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, best, step);
      const int other_index = __shfl_xor_sync(0xffffffffu, index, step);
      if (other > best || (other == best && other_index < index)) {
        best = other;
        index = other_index;
      }
    }
    if (j == 0) first_score = scores[index];
    // Chosen by logit, the best comes first: its logit is the largest of the chosen.
    const float weight = p.softmax_after_topk ? expf(scores[index] - first_score) : scores[index];
    total += weight;
    if (lane == 0) {
      ids[j] = index;
      weights[j] = weight;
      choice[index] = -INFINITY;
    }
    __syncwarp();
  }
  const float divisor = p.normalize || p.softmax_after_topk ? total + 1e-20f : 1.0f;
  for (int j = lane; j < p.topk; j += 32) weights[j] = weights[j] / divisor * p.scale;
}

/// A warp's dot product of a matrix row with fp32 or bf16 numbers.
__device__ float row_product(const void* matrix, DType dtype, std::int64_t row,
                             std::int64_t columns, const void* x, DType x_dtype,
                             std::int64_t x_begin) {
  float sum = 0.0f;
  for (std::int64_t c = threadIdx.x; c < columns; c += 32)
    sum += read(matrix, dtype, row * columns + c) * read(x, x_dtype, x_begin + c);
  return warp_sum(sum);
}

__global__ void gate_up_kernel(ExpertWeights w, Rows x, const std::int32_t* ids,
                               const float* weights, std::int64_t topk, bool scale_input,
                               float* middle) {
  const std::int64_t pair = blockIdx.y + std::int64_t{gridDim.y} * blockIdx.z;
  if (pair >= x.tokens * topk) return;
  const std::int64_t rows = 2 * w.intermediate;
  const std::int64_t row = blockIdx.x * std::int64_t{kWarps} + threadIdx.y;
  const std::int32_t e = ids[pair];
  if (row >= rows || e < 0 || e >= w.num_experts) return;
  float y = row_product(w.gate_up, w.dtype, e * rows + row, w.hidden, x.data, x.dtype,
                        row_begin(x, pair / topk));
  if (scale_input) y *= weights[pair];
  if (w.gate_up_bias != nullptr) y += w.gate_up_bias[e * rows + row];
  if (threadIdx.x == 0) middle[pair * 3 * w.intermediate + row] = y;
}

__global__ void gate_kernel(ExpertWeights w, std::int64_t pairs, float* middle) {
  const std::int64_t at = blockIdx.x * std::int64_t{256} + threadIdx.x;
  if (at >= pairs * w.intermediate) return;
  const std::int64_t i = at % w.intermediate;
  float* row = middle + at / w.intermediate * 3 * w.intermediate;
  const std::int64_t gate = w.activation.interleaved ? 2 * i : i;
  const std::int64_t up = w.activation.interleaved ? 2 * i + 1 : w.intermediate + i;
  row[2 * w.intermediate + i] = gated(w.activation, row[gate], row[up]);
}

/// One warp an output number: the experts of a token are summed in their order, so the same bits
/// come out every time.
__global__ void down_kernel(ExpertWeights w, const std::int32_t* ids, const float* weights,
                            std::int64_t topk, bool scale_input, const float* middle, Rows out) {
  const std::int64_t token = blockIdx.y + std::int64_t{gridDim.y} * blockIdx.z;
  const std::int64_t row = blockIdx.x * std::int64_t{kWarps} + threadIdx.y;
  if (token >= out.tokens || row >= w.hidden) return;
  float sum = 0.0f;
  for (std::int64_t j = 0; j < topk; ++j) {
    const std::int64_t pair = token * topk + j;
    const std::int32_t e = ids[pair];
    if (e < 0 || e >= w.num_experts) continue;
    float y = row_product(w.down, w.dtype, e * w.hidden + row, w.intermediate, middle, DType::f32,
                          (pair * 3 + 2) * w.intermediate);
    if (w.down_bias != nullptr) y += w.down_bias[e * w.hidden + row];
    sum += scale_input ? y : weights[pair] * y;
  }
  if (threadIdx.x != 0) return;
  const std::int64_t to = row_begin(out, token) + row;
  write(out.data, out.dtype, to, read(out.data, out.dtype, to) + sum);
}

/// y and z of a grid whose product covers n.
dim3 cover(std::int64_t x_blocks, std::int64_t n) {
  constexpr std::int64_t kMaxY = 65535;
  const std::int64_t z = (n + kMaxY - 1) / kMaxY;
  const std::int64_t y = (n + z - 1) / z;
  return {static_cast<unsigned>(x_blocks), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

}  // namespace

void route(const RouteParams& p, std::int64_t logits_row, std::int64_t num_tokens,
           std::int64_t ids_row, std::int64_t weights_row, cudaStream_t stream) {
  if (num_tokens == 0) return;
  const std::size_t shared = 2 * sizeof(float) * static_cast<std::size_t>(p.num_experts);
  ptx::launch(route_kernel, static_cast<unsigned>(num_tokens), 32, shared, stream, p, logits_row,
              ids_row, weights_row);
}

void experts(const ExpertWeights& w, const Rows& x, const std::int32_t* ids, const float* weights,
             std::int64_t topk, bool scale_input, float* middle, const Rows& out,
             cudaStream_t stream) {
  const std::int64_t pairs = x.tokens * topk;
  if (pairs == 0) return;
  const dim3 warps(32, kWarps);
  const auto blocks = [](std::int64_t rows) { return (rows + kWarps - 1) / kWarps; };
  ptx::launch(gate_up_kernel, cover(blocks(2 * w.intermediate), pairs), warps, 0, stream, w, x, ids,
              weights, topk, scale_input, middle);
  ptx::launch(gate_kernel, static_cast<unsigned>((pairs * w.intermediate + 255) / 256), 256, 0,
              stream, w, pairs, middle);
  ptx::launch(down_kernel, cover(blocks(w.hidden), x.tokens), warps, 0, stream, w, ids, weights,
              topk, scale_input, middle, out);
}

}  // namespace attune::kernels::ops::cuda
