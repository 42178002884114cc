#include "tensor_map.hpp"

#include <cstring>
#include <string>

#include "machine.hpp"

namespace attune::emulated {
namespace {

std::uint8_t bytes_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: return 4;
    default: return 0;
  }
}

}  // namespace

std::size_t TensorMap::box_bytes() const {
  std::size_t bytes = element_bytes;
  for (int i = 0; i < rank; ++i) bytes *= box[i];
  return bytes;
}

template <class Visit>
void TensorMap::walk(std::uint32_t shared, const std::int32_t* at, int rank_used,
                     Visit visit) const {
  if (rank_used != rank)
    trap("the copy engine is given " + std::to_string(rank_used) + " coordinates for a tensor of " +
         std::to_string(rank));
  if (shared % 128 != 0) trap("the copy engine's shared address is no multiple of 128 bytes");
  const std::size_t row_bytes = std::size_t{box[0]} * element_bytes;
  std::size_t rows = 1;
  for (int i = 1; i < rank; ++i) rows *= box[i];
  for (std::size_t row = 0; row < rows; ++row) {
    std::size_t rest = row;
    bool inside = true;
    std::int64_t offset = 0;
    for (int i = 1; i < rank; ++i) {
      const auto within = static_cast<std::int64_t>(rest % box[i]);
      rest /= box[i];
      const std::int64_t place = at[i] + within;
      inside = inside && place >= 0 && place < static_cast<std::int64_t>(dims[i]);
      offset += place * static_cast<std::int64_t>(strides[i - 1]);
    }
    // Rows are whole chunks of 16 bytes, which stay together however they are swizzled.
    const int per_chunk = 16 / element_bytes;
    for (std::size_t byte = 0; byte < row_bytes; byte += 16) {
      const std::int64_t column = at[0] + static_cast<std::int64_t>(byte / element_bytes);
      const std::int64_t there = offset + column * element_bytes;
      unsigned char* const here = shared_pointer(
          swizzled(shared + static_cast<std::uint32_t>(row * row_bytes + byte), swizzle));
      const auto exists = [&](std::int64_t c) {
        return inside && c >= 0 && c < static_cast<std::int64_t>(dims[0]);
      };
      if (exists(column) && exists(column + per_chunk - 1)) {
        visit(here, base + there, 16);
        continue;
      }
      for (int e = 0; e < per_chunk; ++e)
        visit(here + e * element_bytes,
              exists(column + e) ? base + there + e * element_bytes : nullptr, element_bytes);
    }
  }
}

void TensorMap::read_box(std::uint32_t shared, const std::int32_t* at, int rank_used) const {
  walk(shared, at, rank_used, [](unsigned char* to, const unsigned char* from, std::size_t bytes) {
    if (from != nullptr)
      std::memcpy(to, from, bytes);
    else
      std::memset(to, 0, bytes);
  });
}

void TensorMap::write_box(std::uint32_t shared, const std::int32_t* at, int rank_used) const {
  walk(shared, at, rank_used, [](const unsigned char* from, unsigned char* to, std::size_t bytes) {
    if (to != nullptr) std::memcpy(to, from, bytes);
  });
}

CUresult encode_tensor_map(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                           const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                           const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                           CUtensorMapFloatOOBfill) {
  TensorMap m;
  m.element_bytes = bytes_of(type);
  if (m.element_bytes == 0 || rank < 1 || rank > 5 || base == nullptr ||
      reinterpret_cast<std::uintptr_t>(base) % 16 != 0 ||
      interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
    return CUDA_ERROR_INVALID_VALUE;
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE: m.swizzle = 0; break;
    case CU_TENSOR_MAP_SWIZZLE_32B: m.swizzle = 1; break;
    case CU_TENSOR_MAP_SWIZZLE_64B: m.swizzle = 2; break;
    case CU_TENSOR_MAP_SWIZZLE_128B: m.swizzle = 3; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  m.base = static_cast<unsigned char*>(base);
  m.rank = static_cast<std::uint8_t>(rank);
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (dims[i] == 0 || dims[i] > std::uint64_t{1} << 32 || box[i] == 0 || box[i] > 256 ||
        element_strides[i] != 1)
      return CUDA_ERROR_INVALID_VALUE;
    m.dims[i] = static_cast<std::uint32_t>(dims[i] - (dims[i] >> 32));
    m.box[i] = static_cast<std::uint16_t>(box[i]);
    if (i + 1 < rank) {
      if (strides[i] % 16 != 0 || strides[i] >= std::uint64_t{1} << 40)
        return CUDA_ERROR_INVALID_VALUE;
      m.strides[i] = strides[i];
    }
  }
  const std::size_t row = std::size_t{box[0]} * m.element_bytes;
  if (row % 16 != 0 || (m.swizzle > 0 && row > std::size_t{16} << m.swizzle))
    return CUDA_ERROR_INVALID_VALUE;
  *map = {};
  std::memcpy(static_cast<void*>(map), &m, sizeof m);
  return CUDA_SUCCESS;
}

}  // namespace attune::emulated
