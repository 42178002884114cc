// The calls of cuBLASLt that matrix products need (model/cuda/cublaslt.hpp), in plain loops.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime.hpp"

struct EmulatedDesc {
  bool transpose_a = false;
  bool transpose_b = false;
};
struct EmulatedLayout {
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t leading = 0;
  std::int64_t batch = 1;
  std::int64_t stride = 0;  ///< between matrices of a batch
};

namespace {

EmulatedDesc* of(cublasLtMatmulDesc_t p) { return reinterpret_cast<EmulatedDesc*>(p); }
EmulatedLayout of(cublasLtMatrixLayout_t p) { return *reinterpret_cast<EmulatedLayout*>(p); }

float read(const void* data, const EmulatedLayout& l, std::int64_t row, std::int64_t column) {
  const std::int64_t at = column * l.leading + row;
  switch (l.type) {
    case CUDA_R_16BF: return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
    case CUDA_R_16F: return __half2float(static_cast<const __half*>(data)[at]);
    default: return static_cast<const float*>(data)[at];
  }
}

void write(void* data, const EmulatedLayout& l, std::int64_t row, std::int64_t column, float x) {
  const std::int64_t at = column * l.leading + row;
  switch (l.type) {
    case CUDA_R_16BF: static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16(x); break;
    case CUDA_R_16F: static_cast<__half*>(data)[at] = __float2half(x); break;
    default: static_cast<float*>(data)[at] = x; break;
  }
}

std::size_t bytes_of(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

const void* matrix_of(const void* data, const EmulatedLayout& l, std::int64_t index) {
  return static_cast<const char*>(data) + index * l.stride * static_cast<int>(bytes_of(l.type));
}
void* matrix_of(void* data, const EmulatedLayout& l, std::int64_t index) {
  return const_cast<void*>(matrix_of(static_cast<const void*>(data), l, index));
}

/// op(m) as rows of `inner` numbers: what a product walks along.
std::vector<float> gather(const void* data, const EmulatedLayout& l, bool inner_is_row) {
  const std::int64_t inner = inner_is_row ? l.rows : l.columns;
  const std::int64_t outer = inner_is_row ? l.columns : l.rows;
  std::vector<float> out(static_cast<std::size_t>(inner * outer));
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i)
      out[static_cast<std::size_t>(o * inner + i)] =
          inner_is_row ? read(data, l, i, o) : read(data, l, o, i);
  return out;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "an error of the emulated cuBLASLt"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t,
                                        cudaDataType_t) {
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new EmulatedDesc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete of(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t) {
  cublasOperation_t operation{};
  std::memcpy(&operation, value, sizeof operation);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA)
    of(desc)->transpose_a = operation == CUBLAS_OP_T;
  else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB)
    of(desc)->transpose_b = operation == CUBLAS_OP_T;
  else
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new EmulatedLayout{
      type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t) {
  auto& l = *reinterpret_cast<EmulatedLayout*>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    l.batch = *static_cast<const std::int32_t*>(value);
  else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    l.stride = *static_cast<const std::int64_t*>(value);
  else
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<EmulatedLayout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<int*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  *results = {};
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*,
                              size_t, cudaStream_t stream) {
  const EmulatedDesc what = *of(desc);
  const EmulatedLayout la = of(a_layout);
  const EmulatedLayout lb = of(b_layout);
  const EmulatedLayout lc = of(c_layout);
  const EmulatedLayout ld = of(d_layout);
  const float one = *static_cast<const float*>(alpha);
  const float kept = *static_cast<const float*>(beta);
  const std::int64_t k = what.transpose_a ? la.rows : la.columns;
  const std::int64_t m = what.transpose_a ? la.columns : la.rows;
  const std::int64_t n = what.transpose_b ? lb.rows : lb.columns;
  if (m != ld.rows || n != ld.columns || k != (what.transpose_b ? lb.columns : lb.rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (la.batch != ld.batch || lb.batch != ld.batch || lc.batch != ld.batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  attune::emulated::enqueue(stream, [=] {
    for (std::int64_t h = 0; h < ld.batch; ++h) {
      const std::vector<float> left = gather(matrix_of(a, la, h), la, what.transpose_a);
      const std::vector<float> right = gather(matrix_of(b, lb, h), lb, !what.transpose_b);
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i) {
          const float* x = left.data() + i * k;
          const float* y = right.data() + j * k;
          float sum = 0;
          for (std::int64_t l = 0; l < k; ++l) sum += x[l] * y[l];
          const float old = kept == 0 ? 0.0f : kept * read(matrix_of(c, lc, h), lc, i, j);
          write(matrix_of(d, ld, h), ld, i, j, one * sum + old);
        }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
