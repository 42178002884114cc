#include "kernels/tensor_map/lines.hpp"

#include <algorithm>
#include <string>

#include <cuda.h>
#include <cuda_runtime.h>

namespace attune::kernels::tensor_map {
namespace {

Status encode_with(CUtensorMapL2promotion promotion, Encoder encoder, CUtensorMap_st& map,
                   const Tensor& tensor) {
  std::array<cuuint64_t, kMaxRank> sizes{};
  std::array<cuuint64_t, kMaxRank - 1> bytes{};
  std::array<cuuint32_t, kMaxRank> box{};
  std::array<cuuint32_t, kMaxRank> ones{};
  const auto rank = static_cast<std::size_t>(tensor.rank);
  for (std::size_t i = 0; i < rank; ++i) {
    sizes[i] = static_cast<cuuint64_t>(std::max<std::int64_t>(1, tensor.dims[i]));
    box[i] = static_cast<cuuint32_t>(tensor.box[i]);
    ones[i] = 1;
  }
  const std::size_t element = size_of(tensor.dtype);
  // The stride of a dimension of one is never walked and may be anything: the copy engine still
  // wants a multiple of 16 bytes.
  for (std::size_t i = 0; i + 1 < rank; ++i)
    bytes[i] =
        static_cast<cuuint64_t>(tensor.dims[i + 1] > 1 ? tensor.strides[i] : tensor.dims[0]) *
        element;
  const auto function = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encoder);
  const CUresult result =
      function(&map,
               element == 1                 ? CU_TENSOR_MAP_DATA_TYPE_UINT8
               : tensor.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                            : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
               static_cast<cuuint32_t>(rank), const_cast<void*>(tensor.base), sizes.data(),
               bytes.data(), box.data(), ones.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
               element == 1 ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B, promotion,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return invalid_argument("the copy engine cannot address " + std::string(tensor.name) +
                          ": its address and its token, head and page strides must be multiples of "
                          "16 bytes (cuTensorMapEncodeTiled: error " +
                          std::to_string(static_cast<int>(result)) + ")");
}

}  // namespace

Result<Encoder> encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess)
    return Status{StatusCode::device_error,
                  std::string("looking up cuTensorMapEncodeTiled: ") + cudaGetErrorString(error)};
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    return Status{StatusCode::device_error,
                  "the driver has no cuTensorMapEncodeTiled: install a driver of CUDA 12 or newer"};
  return Encoder{function};
}

Status encode(Encoder encoder, CUtensorMap_st& map, const Tensor& tensor) {
  return encode_with(CU_TENSOR_MAP_L2_PROMOTION_L2_256B, encoder, map, tensor);
}

Status encode_lines(Encoder encoder, CUtensorMap_st& map, const Tensor& tensor) {
  return encode_with(CU_TENSOR_MAP_L2_PROMOTION_NONE, encoder, map, tensor);
}

}  // namespace attune::kernels::tensor_map
