// The Hopper prefill kernel: warp roles and their order. One warp takes work and brings queries,
// one feeds a ring of key tiles, one a ring of value tiles; consumer warpgroups of 64 query rows
// each work through one stream of tiles that does not pause between work items: while a finished
// item's output is divided and written, the next item's first product already runs.
//
//   consumer, item of tiles n-1 … 0:      tensor cores           warpgroup's own pipes
//     turn j:   issue Q K_{j-1}, P_j V_j   [QK_{j-1}][P_j V_j]   softmax of j-1 under P_j V_j
//     last:     issue P_0 V_0, then the next item's Q K          output under the next QK
//
// FlashAttention-3 (arXiv:2407.08608) has the roles, the turns and the overlap within a warpgroup.
#pragma once

#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ragged_prefill/sm90/hand_out.cuh"
#include "kernels/ragged_prefill/sm90/loader.cuh"
#include "kernels/ragged_prefill/sm90/output.cuh"
#include "kernels/ragged_prefill/sm90/widening_loader.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

/// Warps of the loading warpgroup: one an operand where the copy engine or asynchronous copies do
/// the work, two where bytes pass through registers.
template <class C>
__device__ void load_tiles(SharedOf<C>& shared, const Params& params, const CUtensorMap& q_map,
                           const CUtensorMap& k_map, const CUtensorMap& v_map, int warp) {
  const Cache keys{params.k, params.k_page_stride, params.k_token_stride, params.k_head_stride};
  const Cache values{params.v, params.v_page_stride, params.v_token_stride, params.v_head_stride};
  if constexpr (C::kWidened) {
    const auto widen_keys = [&](int share) {
      NoDuty none;
      WideningLoader<C, C::kHeadDimQk, C::kKeyStages, NoDuty>(shared.k, shared.k_full,
                                                              shared.k_empty, shared.stored_k,
                                                              k_map, keys, params, share, none)
          .load_all(shared, share == 0);
    };
    const auto widen_values = [&](int share, auto& duty) {
      WideningLoader<C, C::kHeadDimVo, C::kValueStages, std::remove_reference_t<decltype(duty)>>(
          shared.v, shared.v_full, shared.v_empty, shared.stored_v, v_map, values, params, share,
          duty)
          .load_all(shared, false);
    };
    static_assert(kWideningWarps == 2);
    if (warp < 2) {
      widen_keys(warp);
    } else if (warp == 2) {
      NoDuty none;
      widen_values(0, none);
    } else {
      HandOut<C> work(shared, params, q_map);
      widen_values(1, work);
      work.run();
    }
  } else {
    if (warp == 0)
      TileLoader<C, C::kHeadDimQk, C::kKeyStages>(shared.k, shared.k_full, shared.k_empty, k_map,
                                                  keys, params)
          .load_all(shared, true);
    else if (warp == 1)
      TileLoader<C, C::kHeadDimVo, C::kValueStages>(shared.v, shared.v_full, shared.v_empty, v_map,
                                                    values, params)
          .load_all(shared, false);
    else if (warp == 2)
      HandOut<C>(shared, params, q_map).run();
  }
}

/// One arrival a warp.
__device__ __forceinline__ void release(ptx::Mbarrier& empty) {
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty);
}

template <int N>
__device__ __forceinline__ void copy(float (&to)[N], const float (&from)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = from[i];
}

template <class C>
__device__ void consume(SharedOf<C>& shared, const Params& params, const CUtensorMap& o_map,
                        int warpgroup) {
  const int first_row =
      warpgroup * 64 + static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  const int warp_row =
      warpgroup * 64 + 16 * __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x % 128 / 32), 0);
  constexpr int kTurnThreads = 256;
  const auto turn_wait = [&] { ptx::named_barrier_sync(kTurnBarrier + warpgroup, kTurnThreads); };
  const auto turn_pass = [&] {
    ptx::named_barrier_arrive(kTurnBarrier + (warpgroup + 1) % C::kWarpgroups, kTurnThreads);
  };

  const std::uint64_t q_tile = ptx::wgmma_descriptor(shared.q[0]) + (warpgroup * 64 * 128 >> 4);
  const std::uint64_t k_tile = ptx::wgmma_descriptor(shared.k[0]);
  const ValueDescriptors v_tile = value_descriptors<C>(shared);
  constexpr std::uint64_t kQStep = sizeof(shared.q[0]) >> 4;
  constexpr std::uint64_t kKStep = sizeof(shared.k[0]) >> 4;

  const float log2_scale = (params.soft_cap > 0 ? params.soft_cap : params.scale) * kLog2E;
  const float inverse_scale = 1.0f / log2_scale;
  const float cap_scale = params.soft_cap > 0 ? params.scale / params.soft_cap : 0.0f;

  // Scores live in fresh arrays from product to softmax: carried around the loop as accumulators,
  // they would make the assembler wait for every product in turn (its remark C7515).
  float first_scores[C::kKeyTile / 2];
  Accumulators<C> o;
  std::uint32_t p[C::kKeyTile / 16][4];
  ptx::Ring<C::kQueryStages> q;
  ptx::Ring<C::kKeyStages> k;
  ptx::Ring<C::kValueStages> v;
  Writer<C> writer(shared, params, o_map, warpgroup);

  // The copies of a gather are ordinary writes, which products do not see by themselves.
  const auto landed = [&] {
    if constexpr (C::kGather) ptx::fence_proxy_async();
  };
  const auto wait_for_keys = [&](bool here) {
    if (!here) ptx::mbarrier_wait(shared.k_full[k.stage], k.parity);
    landed();
  };
  const auto start_qk = [&](float(&s)[C::kKeyTile / 2]) {
    issue_qk<C>(s, q_tile + q.stage * kQStep, k_tile + k.stage * kKStep);
    ptx::wgmma_commit();
  };
  const auto kept_of = [&](const PrefillTile& item, int n) {
    if constexpr (C::kBlocks)
      return kept_tile(params, item, n);
    else
      return KeptTile{n, 0};
  };
  const RowTokens tokens(params, warpgroup * 64, warp_row, first_row);
  // Rows themselves where all are kept: with a copy of them instead, products of the widest heads
  // are serialised for want of registers (ptxas C7511; 1.8 times the time).
  const auto meet = [&](const Rows& rows, const KeptTile& kept) -> decltype(auto) {
    if constexpr (C::kBlocks)
      return tokens.meet(rows, kept.tokens);
    else
      return (rows);
  };
  int first_kept = 0;
  const auto wait_for_values = [&](bool first, const PrefillTile& item) {
    ptx::mbarrier_wait(shared.v_full[v.stage], v.parity);
    const int end = (C::kBlocks ? first_kept + 1 : item.tile_end) * C::kKeyTile;
    landed();
    if (C::kClearsTail && first && end > item.kv_len) {
      const int valid = max(0, item.kv_len - (end - C::kKeyTile));
      clear_tail<C>(shared.v[v.stage], valid, warpgroup);
    }
  };
  const auto start_pv = [&](bool accumulate) {
    issue_pv<C>(o, p, v_tile, v.stage, accumulate);
    ptx::wgmma_commit();
  };

  const auto wait_for_queries = [&] {
    ptx::mbarrier_wait(shared.q_full[q.stage], q.parity);
    if constexpr (C::kWidened) narrow_queries<C>(shared.q[q.stage], warpgroup);
  };

  if (warpgroup == C::kWarpgroups - 1) turn_pass();
  wait_for_queries();
  ptx::Ring<kItemStages> at;
  PrefillTile item = shared.item[0];
  if (item.tile_end != 0) {
    float s[C::kKeyTile / 2];
    wait_for_keys(false);
    ptx::wgmma_fence();
    start_qk(s);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(s);
    copy(first_scores, s);
  }
  while (item.tile_end != 0) {
    Rows rows;
    rows.kv_len = item.kv_len;
    rows.first = item.q_position + (warpgroup * 64 >> params.pack_shift);
    rows.last = item.q_position + ((warpgroup * 64 + 63) >> params.pack_shift);
    rows.warp_first = item.q_position + (warp_row >> params.pack_shift);
    rows.warp_last = item.q_position + ((warp_row + 15) >> params.pack_shift);
    rows.own[0] = item.q_position + (first_row >> params.pack_shift);
    rows.own[1] = item.q_position + ((first_row + 8) >> params.pack_shift);
    RowState state;
    float factor[2];
    int tile = item.tile_end - 1;
    KeptTile kept = kept_of(item, tile);
    first_kept = kept.tile;

    const auto receive_scores = [&](float(&s)[C::kKeyTile / 2]) {
      release(shared.k_empty[k.stage]);
      k.advance();
      if (C::kOutput != Output::in_queries && tile == item.tile_begin) {
        __syncwarp();
        release(shared.q_empty[q.stage]);
      }
      if (params.soft_cap > 0) apply_soft_cap(s, cap_scale);
    };

    receive_scores(first_scores);
    first_softmax<C>(p, first_scores, params, meet(rows, kept), kept.tile, state, log2_scale,
                     inverse_scale);
    writer.settle();
    bool accumulate = false;
    bool keys_ready = false;
    while (tile > item.tile_begin) {
      --tile;
      kept = kept_of(item, tile);
      float s[C::kKeyTile / 2];
      wait_for_keys(keys_ready);
      wait_for_values(!accumulate, item);
      turn_wait();
      ptx::wgmma_fence();
      start_qk(s);
      start_pv(accumulate);
      turn_pass();
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(s);
      const auto next_k = k.next();
      keys_ready = ptx::mbarrier_test(shared.k_full[next_k.stage], next_k.parity);
      receive_scores(s);
      const Rows& now = meet(rows, kept);
      if (needs_mask<C>(params, now, kept.tile)) apply_mask<C>(s, params, now, kept.tile);
      const bool moved = online_softmax<C>(s, state, log2_scale, inverse_scale, factor);
      // The next keys are asked for early and waited for here: the branch keeps the assembler from
      // moving the softmax behind the wait for the product that runs beside it.
      if (tile > item.tile_begin && !keys_ready) {
        ptx::mbarrier_wait(shared.k_full[k.stage], k.parity);
        keys_ready = true;
      }
      ptx::wgmma_wait<0>();
      o.pin();
      release(shared.v_empty[v.stage]);
      v.advance();
      if (!C::Rule::kLazyRescale || moved) o.rescale(factor);
      pack_probabilities<C>(p, s);
      accumulate = true;
    }

    // The last product of this item, then the first of the next, whose scores wait their turn while
    // this item's output is written. Queries that must be narrowed first are not waited for within
    // the turn.
    const int stage = q.stage;
    q.advance();
    at.advance();
    if constexpr (C::kWidened) wait_for_queries();
    wait_for_values(!accumulate, item);
    turn_wait();
    ptx::wgmma_fence();
    start_pv(accumulate);
    if constexpr (!C::kWidened) wait_for_queries();
    const PrefillTile next = shared.item[at.stage];
    float s[C::kKeyTile / 2];
    // Behind the last item the product runs on old bytes, unused: a branch around it would make the
    // assembler lose track of which products are under way (C7514).
    if (next.tile_end != 0) wait_for_keys(false);
    start_qk(s);
    turn_pass();
    ptx::wgmma_wait<1>();
    o.pin();
    release(shared.v_empty[v.stage]);
    v.advance();
    float lse[2];
    normalise<C>(o, lse, state, params, first_row, item);
    writer.write(o, first_row, item, stage);
    write_lse<C>(lse, params, first_row, item);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(s);
    copy(first_scores, s);
    item = next;
  }
  writer.settle();
  if (warpgroup == 0) turn_wait();
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    prefill(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
            const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap o_map,
            const __grid_constant__ Params params) {
  SharedOf<C>& shared = *reinterpret_cast<SharedOf<C>*>(ptx::dynamic_shared<1024>());
  if constexpr (C::kOutput == Output::states) ptx::dependency_release();
  // Through a shuffle, so that the compiler knows it as one value a warp and does not compute it
  // anew.
  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0);

  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = 4 * C::kWarpgroups;
    constexpr int kLoaderArrivals = C::kGather ? 32 : C::kWidened ? kWideningWarps : 1;
    constexpr bool kByWriter = C::kOutput == Output::in_queries;
    for (int i = 0; i < C::kQueryStages; ++i) {
      ptx::mbarrier_init(shared.q_full[i], 1);
      ptx::mbarrier_init(shared.q_empty[i], kByWriter ? C::kWarpgroups : kConsumerWarps);
    }
    for (int i = 0; i < kItemStages; ++i) ptx::mbarrier_init(shared.item_full[i], 1);
    ptx::mbarrier_init(shared.item_wanted, 1);
    for (int i = 0; i < C::kKeyStages; ++i) {
      ptx::mbarrier_init(shared.k_full[i], kLoaderArrivals);
      ptx::mbarrier_init(shared.k_empty[i], kConsumerWarps);
    }
    for (int i = 0; i < C::kValueStages; ++i) {
      ptx::mbarrier_init(shared.v_full[i], kLoaderArrivals);
      ptx::mbarrier_init(shared.v_empty[i], kConsumerWarps);
    }
    if constexpr (C::kWidened) {
      // Copies of single lanes announce themselves one by one.
      const int arrivals = params.kv_indices != nullptr && params.box_rows == 0 ? 32 : 1;
      for (int w = 0; w < kWideningWarps; ++w)
        for (int i = 0; i < kStoredStages; ++i) {
          ptx::mbarrier_init(shared.stored_k[w].full[i], arrivals);
          ptx::mbarrier_init(shared.stored_v[w].full[i], arrivals);
        }
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch(q_map);
    if (params.box_rows > 0) {
      ptx::tma_prefetch(k_map);
      ptx::tma_prefetch(v_map);
    }
  }
  for (int i = static_cast<int>(threadIdx.x); i < C::kOnes; i += C::kThreads)
    shared.ones[i] = static_cast<typename C::Element>(1.0f);
  ptx::fence_proxy_async();
  __syncthreads();

  if (warpgroup == 0) {
    ptx::registers_give<C::kProducerRegisters>();
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
    load_tiles<C>(shared, params, q_map, k_map, v_map, warp);
  } else {
    ptx::registers_take<C::kConsumerRegisters>();
    consume<C>(shared, params, o_map, warpgroup - 1);
  }
}

}  // namespace attune::kernels::ragged_prefill::sm90
