// Makes a row of the instance table from a policy.
#pragma once

#include "kernels/paged_decode/sm80/kernel.cuh"
#include "kernels/paged_decode/sm80/launch.hpp"

namespace attune::kernels::paged_decode::sm80 {

/// WithBeside: one to run beside levels of shared prefixes, too. WithListed: one over lists.
template <class Kv, class Policy, bool WithBeside = false, bool WithListed = false>
[[nodiscard]] Instance instance(DType kv_dtype) {
  const void* beside = nullptr;
  if constexpr (WithBeside)
    beside = ptx::kernel_handle(&paged_decode_kernel<Kv, sm80::Beside<Policy>>);
  const void* listed = nullptr;
  if constexpr (WithListed)
    listed = ptx::kernel_handle(&paged_decode_kernel<Kv, sm80::Listed<Policy>>);
  return {.kv_dtype = kv_dtype,
          .head_dim_qk = Policy::kDimQk,
          .head_dim_vo = Policy::kDimVo,
          .padded = Policy::kPadded,
          .rows = Policy::kRows,
          .tile = Policy::kTile,
          .ctas_per_sm = Policy::kCtasPerSm,
          .warps = &Policy::warps,
          .stages = &Policy::stages,
          .shared_bytes = &Policy::shared_bytes,
          .kernel = ptx::kernel_handle(&paged_decode_kernel<Kv, Policy>),
          .beside = beside,
          .listed = listed};
}

/// Sixteen-bit keys. Tiles hold about 8 KiB a warp; wide heads get fewer warps.
template <class Kv>
[[nodiscard]] const Instance* instances_16(DType dtype, std::size_t& count) {
  static const Instance kRows[] = {
      instance<Kv, Policy<64, 64, 2, 1, 8, 1, 32>>(dtype),
      instance<Kv, Policy<64, 64, 2, 2, 8, 1, 32>>(dtype),
      instance<Kv, Policy<80, 80, 2, 1, 8, 1, 16>>(dtype),
      instance<Kv, Policy<96, 96, 2, 1, 8, 1, 16>>(dtype),
      instance<Kv, Policy<128, 128, 2, 1, 8, 1, 16>, true, true>(dtype),
      instance<Kv, Policy<128, 128, 2, 2, 8, 1, 16>, true, true>(dtype),
      instance<Kv, Policy<192, 128, 2, 1, 4, 1, 16>>(dtype),
      instance<Kv, Policy<192, 192, 2, 1, 4, 1, 16>>(dtype),
      instance<Kv, Policy<256, 256, 2, 1, 4, 1, 16>>(dtype),
      instance<Kv, Policy<64, 64, 2, 1, 8, 1, 32, true>>(dtype),
      instance<Kv, Policy<128, 128, 2, 1, 8, 1, 16, true>, false, true>(dtype),
      instance<Kv, Policy<256, 256, 2, 1, 4, 1, 16, true>>(dtype),
      instance<Kv, Policy<512, 512, 2, 1, 8, 1, 16, true, 4>>(dtype),
  };
  count = sizeof(kRows) / sizeof(kRows[0]);
  return kRows;
}

template <class Kv>
[[nodiscard]] const Instance* instances_8(DType dtype, std::size_t& count) {
  static const Instance kRows[] = {
      instance<Kv, Policy<64, 64, 1, 1, 8, 1, 32>>(dtype),
      instance<Kv, Policy<128, 128, 1, 1, 8, 1, 32>>(dtype),
      instance<Kv, Policy<128, 128, 1, 2, 8, 1, 32>>(dtype),
      instance<Kv, Policy<256, 256, 1, 1, 4, 1, 16>>(dtype),
      instance<Kv, Policy<512, 512, 1, 1, 8, 1, 16, false, 2>>(dtype),
  };
  count = sizeof(kRows) / sizeof(kRows[0]);
  return kRows;
}

// One translation unit each, so that a build can compile them side by side.
[[nodiscard]] const Instance* instances_bf16(std::size_t& count);
[[nodiscard]] const Instance* instances_f16(std::size_t& count);
[[nodiscard]] const Instance* instances_e4m3(std::size_t& count);
[[nodiscard]] const Instance* instances_e5m2(std::size_t& count);

}  // namespace attune::kernels::paged_decode::sm80
