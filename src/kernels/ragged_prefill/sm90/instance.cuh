// From a Config to its row of the instance table.
#pragma once

#include "kernels/ragged_prefill/sm90/kernel.cuh"
#include "kernels/ragged_prefill/sm90/launch.hpp"

namespace attune::kernels::ragged_prefill::sm90 {

template <class C>
Instance instance_of(std::string_view name, Strategy strategy, bool for_long = false) {
  return {.name = name,
          .strategy = strategy,
          .dtype = std::is_same_v<typename C::Element, __half> ? DType::f16 : DType::bf16,
          .head_dim_qk = C::kHeadDimQk,
          .head_dim_vo = C::kHeadDimVo,
          .gather = C::kLoad == KvLoad::gather,
          .for_long = for_long,
          .query_tile = C::kQueryTile,
          .key_tile = C::kKeyTile,
          .threads = C::kThreads,
          .shared_bytes = static_cast<int>(sizeof(SharedOf<C>)),
          .kernel = ptx::kernel_handle(&prefill<C>)};
}

}  // namespace attune::kernels::ragged_prefill::sm90
