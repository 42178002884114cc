// The shipped quant_matmul kernels (layer kernels).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant_matmul/layout.hpp"
#include "kernels/quant_matmul/params.hpp"

namespace attune::kernels::quant_matmul {

/// What a kernel needs of the CPU; avx512_vnni asks for the bits of level avx512 and AVX512_VNNI.
enum class Needs : std::uint8_t { nothing, avx2, avx512_vnni };

struct KernelRow {
  const char* name;
  Needs needs;
  Layout layout;  ///< its `zero` does not matter: Params::start carries it
  void (*multiply)(const Params& params);
};

/// One row of x: q, scale and sums of 16 at the row's places. columns is a multiple of 32.
using Quantise = void (*)(const float* x, std::int64_t columns, const Activations& out);

inline constexpr std::size_t kNumLayouts = 9;
extern const KernelRow kScalarRows[kNumLayouts];
extern const KernelRow kAvx2Rows[kNumLayouts];
extern const KernelRow kAvx512VnniRows[kNumLayouts];

/// Kernels of one instruction set: every layout, and the quantisation of activations.
struct KernelSet {
  const char* name;
  Needs needs;
  const KernelRow* rows;  ///< [kNumLayouts]
  Quantise quantise;
  /// Fills Params::start (layouts without minima) or Params::sums (with) for one row.
  void (*fill_sums)(const Activations& row, std::int64_t columns, const Layout& layout,
                    std::int32_t* start, float* sums);
};

extern const KernelSet kScalarSet;
extern const KernelSet kAvx2Set;
extern const KernelSet kAvx512VnniSet;

/// The row of `set` for weights of `layout`.
[[nodiscard]] const KernelRow& find(const KernelSet& set, const Layout& layout);

}  // namespace attune::kernels::quant_matmul
