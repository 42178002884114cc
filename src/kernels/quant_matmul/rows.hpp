// The layouts as table rows of one unit (layer kernels).
#pragma once

#include "kernels/quant_matmul/body.hpp"
#include "kernels/quant_matmul/table.hpp"

namespace attune::kernels::quant_matmul {

template <class Unit, int kBits, int kGroup, Scales kScales, bool kMin>
constexpr KernelRow make_row(const char* name, Needs needs) {
  return {.name = name,
          .needs = needs,
          .layout = {.digit_bits = kBits, .group = kGroup, .scales = kScales, .has_min = kMin},
          .multiply = Body<Unit, kBits, kGroup, kScales, kMin>::multiply};
}

template <class Unit>
constexpr KernelSet make_set(const char* name, Needs needs, const KernelRow* rows) {
  return {.name = name,
          .needs = needs,
          .rows = rows,
          .quantise = QuantiseBody<Unit>::quantise,
          .fill_sums = QuantiseBody<Unit>::fill_sums};
}

}  // namespace attune::kernels::quant_matmul
