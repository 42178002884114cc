// What the threads of a warp do together with matrices of 16-bit elements: ldmatrix, movmatrix,
// mma. The layouts are described in kernels/ptx/mma.cuh. In the library, not in the kernels'
// objects: the loops want an optimiser.
#pragma once

#include <cstdint>

namespace attune::emulated {

enum class Element : std::uint8_t {
  f16,
  bf16,
  e4m3_low,  ///< of two bytes the first, and …
  e4m3_high  ///< … the second
};

[[nodiscard]] float widened(std::uint16_t bits, Element element);
/// `count` elements, one after another.
void widen(const std::uint16_t* from, int count, Element element, float* to);

/// The whole warp's: each gives the address of one row of 16 bytes and gets four registers.
void load_matrices(std::uint32_t (&r)[4], std::uint32_t address, bool transposed);
[[nodiscard]] std::uint32_t transposed_matrix(std::uint32_t word);
/// C[16, 8] += A[16, 16] B[16, 8].
void warp_product(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  Element element);

}  // namespace attune::emulated
