#include "kernels/ops/cuda/rows.hpp"

#include <algorithm>

#include "base/math.hpp"
#include "kernels/ops/cuda/elements.cuh"

namespace attune::kernels::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxGridX = 0x7fffffff;
constexpr std::int64_t kMaxGridY = 65535;

std::int64_t num_rows(const Rows& rows) { return rows.tokens * rows.heads; }
std::int64_t num_elements(const Rows& rows) { return num_rows(rows) * rows.width; }
unsigned element_blocks(std::int64_t n) {
  const std::int64_t blocks = base::ceil_div(n, std::int64_t{kThreads});
  return static_cast<unsigned>(blocks < kMaxGridX ? blocks : kMaxGridX);
}

/// Of a row, what one thread holds: elements threadIdx.x + j * kThreads, zero behind the row's end.
/// All loads go out before the first is used.
template <class T, int kHeld>
__device__ __forceinline__ void load_held(float (&x)[kHeld], const T* row, int width) {
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * kThreads;
    x[j] = i < width ? static_cast<float>(row[i]) : 0.0f;
  }
}

template <int kHeld>
__device__ __forceinline__ void load_held(float (&x)[kHeld], const Rows& rows, std::int64_t row) {
  const std::int64_t from = row_begin(rows, row);
  const int width = static_cast<int>(rows.width);
  if (rows.dtype == DType::bf16) {
    load_held(x, static_cast<const __nv_bfloat16*>(rows.data) + from, width);
  } else if (rows.dtype == DType::f16) {
    load_held(x, static_cast<const __half*>(rows.data) + from, width);
  } else {
    load_held(x, static_cast<const float*>(rows.data) + from, width);
  }
}

template <int kHeld>
__device__ __forceinline__ void store_held(const Rows& rows, std::int64_t row,
                                           const float (&x)[kHeld]) {
  const std::int64_t to = row_begin(rows, row);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * kThreads;
    if (i < rows.width) write(rows.data, rows.dtype, to + i, x[j]);
  }
}

/// A row in registers from its one reading to its one writing.
template <int kHeld>
__global__ void __launch_bounds__(kThreads)
    norm_kernel(Rows x, Rows residual, bool has_residual, float scale, Norm n, Rows out) {
  const std::int64_t row = blockIdx.x;
  const auto width = static_cast<int>(x.width);
  float v[kHeld];
  load_held(v, x, row);
  if (has_residual) {
    float sum[kHeld];
    load_held(sum, residual, row);
#pragma unroll
    for (int j = 0; j < kHeld; ++j) v[j] = sum[j] + scale * v[j];
    store_held(residual, row, v);
  }
  // Under way while the sums are formed.
  float weight[kHeld];
  float bias[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * kThreads;
    weight[j] = n.weight == nullptr || i >= width ? 1.0f : n.weight[i] + n.weight_offset;
    bias[j] = n.bias == nullptr || i >= width ? 0.0f : n.bias[i];
  }
  float mean = 0.0f;
  if (n.layer_norm) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) sum += v[j];
    mean = block_reduce<kThreads, false>(sum) / static_cast<float>(width);
  }
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const bool inside = static_cast<int>(threadIdx.x) + j * kThreads < width;
    const float d = inside ? v[j] - mean : 0.0f;
    squares += d * d;
  }
  const float variance = block_reduce<kThreads, false>(squares) / static_cast<float>(width);
  const float factor = 1.0f / sqrtf(variance + n.eps);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) v[j] = (v[j] - mean) * factor * weight[j] + bias[j];
  store_held(out, row, v);
}

/// A row too long for registers, read again for each sum.
__global__ void __launch_bounds__(kThreads)
    wide_norm_kernel(Rows x, Rows residual, bool has_residual, float scale, Norm n, Rows out) {
  const std::int64_t row = blockIdx.x;
  const Rows& source = has_residual ? residual : x;
  const std::int64_t from = row_begin(source, row);
  if (has_residual) {
    const std::int64_t added = row_begin(x, row);
    for (std::int64_t i = threadIdx.x; i < x.width; i += kThreads)
      write(
          residual.data, residual.dtype, from + i,
          read(residual.data, residual.dtype, from + i) + scale * read(x.data, x.dtype, added + i));
    // Each thread reads back only what it wrote itself.
  }
  float mean = 0.0f;
  if (n.layer_norm) {
    float sum = 0.0f;
    for (std::int64_t i = threadIdx.x; i < x.width; i += kThreads)
      sum += read(source.data, source.dtype, from + i);
    mean = block_reduce<kThreads, false>(sum) / static_cast<float>(x.width);
  }
  float squares = 0.0f;
  for (std::int64_t i = threadIdx.x; i < x.width; i += kThreads) {
    const float d = read(source.data, source.dtype, from + i) - mean;
    squares += d * d;
  }
  const float variance = block_reduce<kThreads, false>(squares) / static_cast<float>(x.width);
  const float factor = 1.0f / sqrtf(variance + n.eps);
  const std::int64_t to = row_begin(out, row);
  for (std::int64_t i = threadIdx.x; i < x.width; i += kThreads) {
    const float weight = n.weight == nullptr ? 1.0f : n.weight[i] + n.weight_offset;
    const float bias = n.bias == nullptr ? 0.0f : n.bias[i];
    write(out.data, out.dtype, to + i,
          (read(source.data, source.dtype, from + i) - mean) * factor * weight + bias);
  }
}

__global__ void rope_angles_kernel(const std::int32_t* positions, const float* inv_freq,
                                   std::int64_t tokens, std::int64_t pairs, float factor,
                                   float* cos_sin, std::int64_t row) {
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < tokens * pairs;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t token = i / pairs;
    const std::int64_t pair = i % pairs;
    // The product is rounded to fp32, as every published model was trained with.
    const float angle = static_cast<float>(positions[token]) * inv_freq[pair];
    cos_sin[token * row + pair] = cosf(angle) * factor;
    cos_sin[token * row + pairs + pair] = sinf(angle) * factor;
  }
}

__global__ void rope_kernel(Rows x, const float* cos_sin, std::int64_t row, std::int64_t pairs,
                            std::int64_t first, bool interleaved, float direction) {
  const std::int64_t count = x.tokens * x.heads * pairs;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t pair = i % pairs;
    const std::int64_t r = i / pairs;
    const float* angles = cos_sin + r / x.heads * row;
    const std::int64_t a = row_begin(x, r) + first + (interleaved ? 2 * pair : pair);
    const std::int64_t b = a + (interleaved ? 1 : pairs);
    const float c = angles[pair];
    const float s = angles[pairs + pair] * direction;
    const float u = read(x.data, x.dtype, a);
    const float v = read(x.data, x.dtype, b);
    write(x.data, x.dtype, a, u * c - v * s);
    write(x.data, x.dtype, b, v * c + u * s);
  }
}

/// out[row, i] = f(row, i) for every element, one a thread: at a few rows more a thread would wait
/// for one load after another.
template <class F>
__global__ void __launch_bounds__(kThreads) each_element_kernel(Rows out, F f) {
  const std::int64_t rows = out.tokens * out.heads;
  for (std::int64_t row = blockIdx.x * std::int64_t{blockDim.y} + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.x} * blockDim.y) {
    const std::int64_t to = row_begin(out, row);
    for (std::int64_t column = blockIdx.y * std::int64_t{blockDim.x} + threadIdx.x;
         column < out.width; column += std::int64_t{gridDim.y} * blockDim.x)
      write(out.data, out.dtype, to + column, f(row, column));
  }
}

template <class F>
void each_element(const Rows& out, cudaStream_t stream, F f) {
  if (num_elements(out) == 0) return;
  constexpr int kWarp = 32;
  unsigned across = kWarp;
  while (across < kThreads && across < out.width) across *= 2;
  const unsigned down = kThreads / across;
  const std::int64_t blocks = base::ceil_div(num_rows(out), std::int64_t{down});
  const std::int64_t pieces = base::ceil_div(out.width, std::int64_t{across});
  ptx::launch(each_element_kernel<F>,
              dim3(static_cast<unsigned>(std::min(blocks, kMaxGridX)),
                   static_cast<unsigned>(std::min(pieces, kMaxGridY))),
              dim3(across, down), 0, stream, out, f);
}

struct Element {
  Rows rows;
  __device__ float operator()(std::int64_t row, std::int64_t column) const {
    return read(rows.data, rows.dtype, row_begin(rows, row) + column);
  }
};

struct GatedElement {
  Rows x;
  Gated g;
  std::int64_t width;
  __device__ float operator()(std::int64_t row, std::int64_t i) const {
    const std::int64_t from = row_begin(x, row);
    const std::int64_t gate = g.interleaved ? 2 * i : i;
    const std::int64_t up = g.interleaved ? 2 * i + 1 : width + i;
    return gated(g, read(x.data, x.dtype, from + gate), read(x.data, x.dtype, from + up));
  }
};

struct ActivatedElement {
  Element x;
  RowActivation kind;
  __device__ float operator()(std::int64_t row, std::int64_t i) const {
    return activated(kind, x(row, i), 1.702f);
  }
};

struct ScaledSum {
  Element x;
  Element out;
  float scale;
  __device__ float operator()(std::int64_t row, std::int64_t i) const {
    return out(row, i) + scale * x(row, i);
  }
};

struct Scaled {
  Element x;
  float factor;
  __device__ float operator()(std::int64_t row, std::int64_t i) const { return factor * x(row, i); }
};

struct Product {
  Element x;
  Element y;
  __device__ float operator()(std::int64_t row, std::int64_t i) const {
    return x(row, i) * y(row, i);
  }
};

struct GatedProduct {
  Element x;
  Element gate;
  __device__ float operator()(std::int64_t row, std::int64_t i) const {
    const float g = gate(row, gate.rows.width == 1 ? 0 : i);
    return x(row, i) / (1.0f + expf(-g));
  }
};

struct Capped {
  Element x;
  float cap;
  __device__ float operator()(std::int64_t row, std::int64_t i) const {
    return cap * tanhf(x(row, i) / cap);
  }
};

struct Biased {
  Element x;
  const float* bias;
  __device__ float operator()(std::int64_t row, std::int64_t i) const {
    return x(row, i) + bias[i];
  }
};

struct IdentityExperts {
  Element x;
  Element out;
  const std::int32_t* ids;
  const float* weights;
  std::int64_t topk;
  std::int32_t first;
  __device__ float operator()(std::int64_t row, std::int64_t i) const {
    float sum = 0.0f;
    for (std::int64_t j = row * topk; j < (row + 1) * topk; ++j)
      if (ids[j] >= first) sum += weights[j];
    return out(row, i) + sum * x(row, i);
  }
};

struct Gathered {
  Element x;
  const std::int32_t* rows;
  float scale;
  __device__ float operator()(std::int64_t row, std::int64_t i) const {
    return scale * x(rows[row], i);
  }
};

__global__ void softmax_kernel(Rows x, Rows out) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t from = row_begin(x, row);
  const std::int64_t to = row_begin(out, row);
  float largest = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < x.width; i += kThreads)
    largest = fmaxf(largest, read(x.data, x.dtype, from + i));
  largest = block_reduce<kThreads, true>(largest);
  float sum = 0.0f;
  for (std::int64_t i = threadIdx.x; i < x.width; i += kThreads)
    sum += expf(read(x.data, x.dtype, from + i) - largest);
  sum = block_reduce<kThreads, false>(sum);
  for (std::int64_t i = threadIdx.x; i < x.width; i += kThreads)
    write(out.data, out.dtype, to + i, expf(read(x.data, x.dtype, from + i) - largest) / sum);
}

/// A warp a row: its lanes share the two weights.
__global__ void merge_attention_kernel(Rows o, float* lse, std::int64_t lse_row, Rows more,
                                       const float* more_lse, std::int64_t more_lse_row) {
  const std::int64_t row = (blockIdx.x * std::int64_t{kThreads} + threadIdx.x) / 32;
  if (row >= o.tokens * o.heads) return;
  const std::int64_t token = row / o.heads;
  const std::int64_t head = row % o.heads;
  const float mine = lse[token * lse_row + head];
  const float theirs = more_lse[token * more_lse_row + head];
  const float top = fmaxf(mine, theirs);
  if (top == -INFINITY) return;  // no keys on either side: o is 0 already
  const float a = expf(mine - top);
  const float b = expf(theirs - top);
  const std::int64_t to = row_begin(o, row);
  const std::int64_t from = row_begin(more, row);
  for (std::int64_t i = threadIdx.x % 32; i < o.width; i += 32)
    write(
        o.data, o.dtype, to + i,
        (a * read(o.data, o.dtype, to + i) + b * read(more.data, more.dtype, from + i)) / (a + b));
  // Every lane has read the old value.
  __syncwarp();
  if (threadIdx.x % 32 == 0) lse[token * lse_row + head] = top + logf(a + b);
}

}  // namespace

void norm(const Rows& x, const Rows* residual, float scale, const Norm& n, const Rows& out,
          cudaStream_t stream) {
  if (num_elements(x) == 0) return;
  const auto with = [&](auto* kernel) {
    ptx::launch(kernel, static_cast<unsigned>(num_rows(x)), kThreads, 0, stream, x,
                residual == nullptr ? Rows{} : *residual, residual != nullptr, scale, n, out);
  };
  if (x.width <= kThreads) {
    with(&norm_kernel<1>);
  } else if (x.width <= 8 * kThreads) {
    with(&norm_kernel<8>);
  } else if (x.width <= 16 * kThreads) {
    with(&norm_kernel<16>);
  } else if (x.width <= 32 * kThreads) {
    with(&norm_kernel<32>);
  } else {
    with(&wide_norm_kernel);
  }
}

void rope_angles(const std::int32_t* positions, const float* inv_freq, std::int64_t tokens,
                 std::int64_t pairs, float factor, float* cos_sin, std::int64_t row,
                 cudaStream_t stream) {
  if (tokens * pairs == 0) return;
  ptx::launch(rope_angles_kernel, element_blocks(tokens * pairs), kThreads, 0, stream, positions,
              inv_freq, tokens, pairs, factor, cos_sin, row);
}

void rope(const Rows& x, const float* cos_sin, std::int64_t row, std::int64_t pairs,
          std::int64_t first, bool interleaved, bool inverse, cudaStream_t stream) {
  const std::int64_t n = num_rows(x) * pairs;
  if (n == 0) return;
  ptx::launch(rope_kernel, element_blocks(n), kThreads, 0, stream, x, cos_sin, row, pairs, first,
              interleaved, inverse ? -1.0f : 1.0f);
}

void gated_activation(const Rows& x, const Gated& g, const Rows& out, cudaStream_t stream) {
  each_element(out, stream, GatedElement{x, g, out.width});
}

void activation(const Rows& x, RowActivation kind, const Rows& out, cudaStream_t stream) {
  each_element(out, stream, ActivatedElement{{x}, kind});
}

void softmax(const Rows& x, const Rows& out, cudaStream_t stream) {
  if (num_elements(x) > 0)
    ptx::launch(softmax_kernel, static_cast<unsigned>(num_rows(x)), kThreads, 0, stream, x, out);
}

void merge_attention(const Rows& o, float* lse, std::int64_t lse_row, const Rows& more_o,
                     const float* more_lse, std::int64_t more_lse_row, cudaStream_t stream) {
  if (num_rows(o) > 0)
    ptx::launch(merge_attention_kernel, element_blocks(num_rows(o) * 32), kThreads, 0, stream, o,
                lse, lse_row, more_o, more_lse, more_lse_row);
}

void add(const Rows& x, float scale, const Rows& out, cudaStream_t stream) {
  each_element(out, stream, ScaledSum{{x}, {out}, scale});
}

void scale(const Rows& x, float factor, const Rows& out, cudaStream_t stream) {
  each_element(out, stream, Scaled{{x}, factor});
}

void multiply(const Rows& x, const Rows& y, const Rows& out, cudaStream_t stream) {
  each_element(out, stream, Product{{x}, {y}});
}

void sigmoid_gate(const Rows& x, const Rows& gate, const Rows& out, cudaStream_t stream) {
  each_element(out, stream, GatedProduct{{x}, {gate}});
}

void soft_cap(const Rows& x, float cap, const Rows& out, cudaStream_t stream) {
  each_element(out, stream, Capped{{x}, cap});
}

void convert(const Rows& x, const Rows& out, cudaStream_t stream) {
  each_element(out, stream, Element{x});
}

void add_bias(const float* bias, const Rows& out, cudaStream_t stream) {
  each_element(out, stream, Biased{{out}, bias});
}

void identity_experts(const Rows& x, const std::int32_t* ids, const float* weights,
                      std::int64_t topk, std::int32_t first, const Rows& out, cudaStream_t stream) {
  each_element(out, stream, IdentityExperts{{x}, {out}, ids, weights, topk, first});
}

void gather_rows(const Rows& x, const std::int32_t* rows, float scale, const Rows& out,
                 cudaStream_t stream) {
  each_element(out, stream, Gathered{{x}, rows, scale});
}

}  // namespace attune::kernels::ops::cuda
