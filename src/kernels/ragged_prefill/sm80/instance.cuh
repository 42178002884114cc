// Makes a row of the instance table from a policy.
#pragma once

#include "kernels/ragged_prefill/sm80/kernel.cuh"
#include "kernels/ragged_prefill/sm80/launch.hpp"

namespace attune::kernels::ragged_prefill::sm80 {

template <class Kv, class Policy>
[[nodiscard]] Instance instance(DType kv_dtype) {
  return {.kv_dtype = kv_dtype,
          .head_dim_qk = Policy::kDimQk,
          .head_dim_vo = Policy::kDimVo,
          .padded = Policy::kPadded,
          .blocks = Policy::kBlocks,
          .rows = Policy::kRows,
          .key_tile = Policy::kKeyTile,
          .threads = Policy::kThreads,
          .shared_bytes = Policy::kSharedBytes,
          .kernel = ptx::kernel_handle(&ragged_prefill_kernel<Kv, Policy>)};
}

template <class Kv>
[[nodiscard]] const Instance* instances_16(DType dtype, std::size_t& count) {
  static const Instance kRows[] = {
      instance<Kv, Policy<64, 64, 2, 4, 64, 3>>(dtype),
      instance<Kv, Policy<80, 80, 2, 4, 64, 2>>(dtype),
      instance<Kv, Policy<96, 96, 2, 4, 32, 3>>(dtype),
      instance<Kv, Policy<128, 128, 2, 4, 32, 3>>(dtype),
      instance<Kv, Policy<192, 128, 2, 4, 32, 3>>(dtype),
      instance<Kv, Policy<192, 192, 2, 8, 64, 2>>(dtype),
      instance<Kv, Policy<256, 256, 2, 8, 64, 2>>(dtype),  // 192 KB
      instance<Kv, Policy<256, 256, 2, 8, 32, 3>>(dtype),
      instance<Kv, Policy<64, 64, 2, 4, 64, 3, true>>(dtype),
      instance<Kv, Policy<128, 128, 2, 4, 32, 3, true>>(dtype),
      instance<Kv, Policy<256, 256, 2, 8, 32, 3, true>>(dtype),
      instance<Kv, Policy<256, 256, 2, 8, 16, 2, true>>(dtype),         // 96 KB, as all cards have
      instance<Kv, Policy<512, 512, 2, 8, 32, 2, true, 64, 2>>(dtype),  // 208 KB
      instance<Kv, Policy<512, 512, 2, 2, 16, 2, true, 16, 2>>(dtype),  // 82 KB
      instance<Kv, WithBlocks<Policy<64, 64, 2, 4, 64, 3, true>>>(dtype),
      instance<Kv, WithBlocks<Policy<128, 128, 2, 4, 32, 3, true>>>(dtype),
      instance<Kv, WithBlocks<Policy<256, 256, 2, 8, 32, 3, true>>>(dtype),
  };
  count = sizeof(kRows) / sizeof(kRows[0]);
  return kRows;
}

template <class Kv>
[[nodiscard]] const Instance* instances_8(DType dtype, std::size_t& count) {
  static const Instance kRows[] = {
      instance<Kv, Policy<64, 64, 1, 4, 64, 3>>(dtype),
      instance<Kv, Policy<128, 128, 1, 4, 32, 3>>(dtype),
      instance<Kv, Policy<256, 256, 1, 8, 64, 3>>(dtype),
      instance<Kv, Policy<256, 256, 1, 8, 32, 2>>(dtype),                // 96 KB
      instance<Kv, Policy<512, 512, 1, 8, 32, 3, false, 64, 2>>(dtype),  // 176 KB
      instance<Kv, Policy<512, 512, 1, 2, 32, 2, false, 16, 2>>(dtype),  // 84 KB
      instance<Kv, WithBlocks<Policy<64, 64, 1, 4, 64, 3>>>(dtype),
      instance<Kv, WithBlocks<Policy<128, 128, 1, 4, 32, 3>>>(dtype),
      instance<Kv, WithBlocks<Policy<256, 256, 1, 8, 64, 3>>>(dtype),
  };
  count = sizeof(kRows) / sizeof(kRows[0]);
  return kRows;
}

// One translation unit each, so that a build can compile them side by side.
[[nodiscard]] const Instance* instances_bf16(std::size_t& count);
[[nodiscard]] const Instance* instances_f16(std::size_t& count);
[[nodiscard]] const Instance* instances_e4m3(std::size_t& count);
[[nodiscard]] const Instance* instances_e5m2(std::size_t& count);

}  // namespace attune::kernels::ragged_prefill::sm80
