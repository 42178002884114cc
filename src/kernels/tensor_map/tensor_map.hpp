// Descriptions of tensors for Hopper's copy engine, made on the host (layer kernels).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

struct CUtensorMap_st;

namespace attune::kernels::tensor_map {

/// cuTensorMapEncodeTiled, found through the runtime so that the library links no libcuda.
using Encoder = void*;
[[nodiscard]] Result<Encoder> encoder();

inline constexpr int kMaxRank = 4;

/// A tensor and the box that one copy brings. Rows of a box of 16-bit elements (64 of them) are
/// swizzled over 128 bytes, those of fp8 lie as they are. Innermost first; strides count elements.
struct Tensor {
  std::string_view name;  ///< for messages
  DType dtype = DType::bf16;
  const void* base = nullptr;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> dims{};
  std::array<std::int64_t, kMaxRank - 1> strides{};  ///< of dims 1 and up
  std::array<std::int64_t, kMaxRank> box{};
};

[[nodiscard]] Status encode(Encoder encoder, CUtensorMap_st& map, const Tensor& tensor);

}  // namespace attune::kernels::tensor_map
