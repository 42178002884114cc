// What a CUtensorMap says, kept in its own 128 bytes, and the copies it stands for.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace attune::emulated {

/// Dims innermost first. Zero where a box reaches beyond the tensor.
struct TensorMap {
  unsigned char* base = nullptr;
  std::uint32_t dims[5] = {};
  std::uint64_t strides[4] = {};  ///< bytes, of dims 1 and up
  std::uint16_t box[5] = {};
  std::uint8_t rank = 0;
  std::uint8_t element_bytes = 0;
  std::uint8_t swizzle = 0;  ///< log2 of the 16-byte chunks that trade places: 0 … 3

  [[nodiscard]] static const TensorMap& of(const CUtensorMap& map) {
    return *reinterpret_cast<const TensorMap*>(&map);
  }
  [[nodiscard]] std::size_t box_bytes() const;
  /// Traps where `rank` is not the map's or the place is not aligned as the copy engine wants it.
  void read_box(std::uint32_t shared, const std::int32_t* at, int rank_used) const;
  void write_box(std::uint32_t shared, const std::int32_t* at, int rank_used) const;

 private:
  template <class Visit>
  void walk(std::uint32_t shared, const std::int32_t* at, int rank_used, Visit visit) const;
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

/// cuTensorMapEncodeTiled, with the driver's demands on alignment and sizes.
CUresult encode_tensor_map(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                           const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                           const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                           CUtensorMapFloatOOBfill fill);

/// Where the copy engine puts the byte whose place without swizzling is `address`.
[[nodiscard]] constexpr std::uint32_t swizzled(std::uint32_t address, int swizzle) {
  const std::uint32_t mask = (1u << swizzle) - 1;
  return address ^ ((address >> 7 & mask) << 4);
}

}  // namespace attune::emulated
