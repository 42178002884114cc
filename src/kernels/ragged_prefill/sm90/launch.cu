#include "kernels/ragged_prefill/sm90/launch.hpp"

#include "kernels/ragged_prefill/sm90/instances.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include <cuda.h>
#include <cuda_runtime.h>

namespace attune::kernels::ragged_prefill::sm90 {
namespace {

Status failed(cudaError_t error, std::string_view what) {
  return {StatusCode::device_error, std::string(what) + ": " + cudaGetErrorString(error) + " (" +
                                        cudaGetErrorName(error) + ")"};
}

/// Dims innermost first; strides in elements, of dims 1 and up.
template <std::size_t Rank>
Status encode(TensorMapEncoder encoder, CUtensorMap& map, DType dtype, const void* base,
              std::array<std::int64_t, Rank> dims, std::array<std::int64_t, Rank - 1> strides,
              std::array<std::int64_t, Rank> box, std::string_view what) {
  std::array<cuuint64_t, Rank> sizes{};
  std::array<cuuint64_t, Rank - 1> bytes{};
  std::array<cuuint32_t, Rank> box_dims{};
  std::array<cuuint32_t, Rank> ones{};
  for (std::size_t i = 0; i < Rank; ++i) {
    sizes[i] = static_cast<cuuint64_t>(std::max<std::int64_t>(1, dims[i]));
    box_dims[i] = static_cast<cuuint32_t>(box[i]);
    ones[i] = 1;
  }
  // The stride of a dimension of one is never walked and may be anything: the copy engine still
  // wants a multiple of 16 bytes.
  for (std::size_t i = 0; i + 1 < Rank; ++i)
    bytes[i] = static_cast<cuuint64_t>(dims[i + 1] > 1 ? strides[i] : dims[0]) * 2;
  const auto function = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encoder);
  const CUresult result = function(
      &map,
      dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      Rank, const_cast<void*>(base), sizes.data(), bytes.data(), box_dims.data(), ones.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return invalid_argument(std::string("prefill: the copy engine cannot address ") +
                          std::string(what) +
                          ": its address and its token, head and page strides must be multiples of "
                          "16 bytes (cuTensorMapEncodeTiled: error " +
                          std::to_string(static_cast<int>(result)) + ")");
}

}  // namespace

Result<TensorMapEncoder> tensor_map_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess) return failed(error, "looking up cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    return Status{StatusCode::device_error,
                  "the driver has no cuTensorMapEncodeTiled: install a driver of CUDA 12 or newer"};
  }
  return TensorMapEncoder{function};
}

Result<int> prepare(const Instance& instance) {
  cudaError_t error = cudaFuncSetAttribute(
      instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, instance.shared_bytes);
  if (error != cudaSuccess) return failed(error, instance.name);
  int device = 0;
  int sms = 0;
  error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return failed(error, instance.name);
  return sms;
}

int box_rows(const Instance& instance, std::int64_t tokens_per_page, bool ragged) {
  if (ragged) return instance.key_tile;
  const int rows = static_cast<int>(std::gcd<std::int64_t>(tokens_per_page, instance.key_tile));
  return rows % 8 == 0 ? rows : 0;
}

Status launch(const Instance& instance, TensorMapEncoder encoder, int blocks,
              const Operands& operands, const Params& params, cudaStream_t stream) {
  CUtensorMap q_map{};
  CUtensorMap k_map{};
  CUtensorMap v_map{};
  CUtensorMap o_map{};
  const std::int64_t pack = std::int64_t{1} << params.pack_shift;
  if (Status s = encode<3>(encoder, q_map, instance.dtype, operands.q,
                           {instance.head_dim_qk, operands.num_qo_heads, operands.q_tokens},
                           {operands.q_head_stride, operands.q_token_stride},
                           {64, pack, instance.query_tile / pack}, "q");
      !s.ok())
    return s;
  if (Status s =
          encode<3>(encoder, o_map, instance.dtype, params.o,
                    {instance.head_dim_vo, operands.num_qo_heads, operands.q_tokens},
                    {params.o_head_stride, params.o_token_stride}, {64, pack, 64 / pack}, "o");
      !s.ok())
    return s;
  const auto encode_keys = [&](CUtensorMap& map, const void* base, int head_dim,
                               std::int64_t token_stride, std::int64_t head_stride,
                               std::int64_t page_stride, std::string_view what) {
    return encode<4>(
        encoder, map, instance.dtype, base,
        {head_dim, operands.tokens_per_page, operands.num_kv_heads, operands.num_pages},
        {token_stride, head_stride, page_stride}, {64, params.box_rows, 1, 1}, what);
  };
  if (!instance.gather) {
    if (Status s = encode_keys(k_map, params.k, instance.head_dim_qk, params.k_token_stride,
                               params.k_head_stride, params.k_page_stride, "k");
        !s.ok())
      return s;
    if (Status s = encode_keys(v_map, params.v, instance.head_dim_vo, params.v_token_stride,
                               params.v_head_stride, params.v_page_stride, "v");
        !s.ok())
      return s;
  }

  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(instance.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(instance.shared_bytes);
  config.stream = stream;
  Params copy = params;
  void* arguments[] = {&q_map, &k_map, &v_map, &o_map, &copy};
  const cudaError_t error = cudaLaunchKernelExC(&config, instance.kernel, arguments);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return failed(error, instance.name);
}

std::vector<Instance> instances() {
  std::vector<Instance> all = fa3_instances();
  for (const auto& more : {fa3_gather_instances(), fa4_instances()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace attune::kernels::ragged_prefill::sm90
