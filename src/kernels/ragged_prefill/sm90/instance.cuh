// From a Config to its row of the instance table.
#pragma once

#include "kernels/ragged_prefill/sm90/kernel.cuh"
#include "kernels/ragged_prefill/sm90/launch.hpp"

namespace attune::kernels::ragged_prefill::sm90 {

/// Where nothing finer was measured: products at 5/6 of their rate.
template <class C>
constexpr Cost estimated_cost() {
  constexpr int kProducts = C::kQueryTile * C::kKeyTile / 2048 * (C::kHeadDimQk + C::kHeadDimVo);
  return {.tile = 2500, .key_tile = kProducts * 6 / 5};
}

template <class C>
Instance instance_of(std::string_view name, Strategy strategy, Cost cost = estimated_cost<C>()) {
  constexpr DType kOuter = std::is_same_v<typename C::Outer, __half> ? DType::f16 : DType::bf16;
  return {.name = name,
          .strategy = strategy,
          .dtype = kOuter,
          .kv_dtype = C::kWidened ? DType::fp8_e4m3 : kOuter,
          .head_dim_qk = C::kHeadDimQk,
          .head_dim_vo = C::kHeadDimVo,
          .boxes = !C::kGather,
          .gather = C::kGather || C::kWidened,
          .loaded_keys = C::kGather ? 0 : C::kKeyTile / (C::kWidened ? kWideningWarps : 1),
          .states = C::kOutput == Output::states,
          .query_tile = C::kQueryTile,
          .key_tile = C::kKeyTile,
          .threads = C::kThreads,
          .shared_bytes = static_cast<int>(sizeof(SharedOf<C>)),
          .cost = cost,
          .kernel = ptx::kernel_handle(&prefill<C>)};
}

}  // namespace attune::kernels::ragged_prefill::sm90
