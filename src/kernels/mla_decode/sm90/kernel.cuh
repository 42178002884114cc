// The Hopper latent kernel: warp roles and their order. A block of 64 query rows (heads of a few
// tokens) meets one stream of key tiles, each 64 latents of 576 columns, whose first 512 are the
// values too.
//
// 64 x 512 outputs fill half the register file, so two warpgroups hold 256 columns each, and they
// take turns at making probabilities: warpgroup w owns the tiles of stage w. Every tile's
// probabilities are used by both, by the owner from registers, by the other from shared memory:
//
//   w owns tile t:  Q K_t^T, rope and own half | P_{t-1} V_{t-1} | Q K_t^T, other half |
//                   softmax of t, handed over  | P_t V_t
//
// While one warpgroup does its softmax the other's products run. A tile's own half comes first
// because its room was given back first. FlashMLA (github.com/deepseek-ai/FlashMLA) has the idea of
// the halves and of the seesaw.
#pragma once

#include <type_traits>

#include "kernels/mla_decode/sm90/packed_keys.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/ring.cuh"

namespace attune::kernels::mla_decode::sm90 {

/// Whether any of this warp's 16 rows can exist.
__device__ __forceinline__ bool warp_has_rows(const Params& params) {
  return 16 * warp_of_group() < params.heads_per_block * params.tokens_per_block;
}

/// The first of two parts to come: leaves its rows at the place and says so.
__device__ __forceinline__ void leave_first(const Params& params, std::int64_t place,
                                            std::int32_t* counter, const RowState& state,
                                            const Output& o, bool states_mine) {
  const std::int64_t row = place * kRows + 16 * warp_of_group() + lane() / 4;
  if (warp_has_rows(params)) leave_part(o, params.partial_o + place * kRows * kDimVo);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (!states_mine) continue;
    params.partial_maximum[row + 8 * h] = state.maximum[h];
    params.partial_sum[row + 8 * h] = state.sum[h];
  }
  ptx::named_barrier_sync(kConsumerBarrier, kConsumers);
  if (threadIdx.x == 0) ptx::arrive_at(counter);
}

/// The second waits for what the first, which is at work already, leaves: the weights of both
/// parts, and the state of the whole.
__device__ __forceinline__ void meet_first(const Params& params, std::int64_t place,
                                           std::int32_t* counter, RowState& state, float (&own)[2],
                                           float (&other)[2]) {
  if (threadIdx.x == 0) {
    ptx::wait_for(counter, kAllArrived);
    *counter = 0;
  }
  ptx::named_barrier_sync(kConsumerBarrier, kConsumers);
  const std::int64_t row = place * kRows + 16 * warp_of_group() + lane() / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float theirs = __ldcg(params.partial_maximum + row + 8 * h);
    const float maximum = fmaxf(state.maximum[h], theirs);
    own[h] = ptx::exp2_approx(state.maximum[h] - finite(maximum));
    other[h] = ptx::exp2_approx(theirs - finite(maximum));
    state.maximum[h] = maximum;
    state.sum[h] = __fadd_rn(__fmul_rn(state.sum[h], own[h]),
                             __fmul_rn(__ldcg(params.partial_sum + row + 8 * h), other[h]));
  }
}

/// Divides by the sums, writes this warpgroup's half of the rows and (warpgroup 0) their state, or
/// what becomes of a part. Outputs are only read: ptxas keeps products asynchronous only while
/// nothing writes their accumulators in a branch. `room` is the warps' own meanwhile.
template <bool Sinks, class Element>
__device__ __forceinline__ void finish(float (&sums)[2][kRows], std::int32_t arrival,
                                       const Params& params, const attention::LatentItem& item,
                                       const Rows& rows, RowState& state, const Output& o,
                                       __half* room, int lane_of_group, int warpgroup) {
  const int first = 16 * warp_of_group() + lane() / 4;
  std::int32_t* const counter = counter_of(params, item, lane_of_group);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    state.sum[h] += __shfl_xor_sync(kAllLanes, state.sum[h], 1);
    state.sum[h] += __shfl_xor_sync(kAllLanes, state.sum[h], 2);
    if (lane() % 4 == 0) sums[warpgroup][first + 8 * h] = state.sum[h];
  }
  ptx::named_barrier_sync(kConsumerBarrier, kConsumers);
#pragma unroll
  for (int h = 0; h < 2; ++h) state.sum[h] = sums[0][first + 8 * h] + sums[1][first + 8 * h];

  const bool states_mine = warpgroup == 0 && lane() % 4 == 0;
  const bool meeting = item.meeting >= 0;
  const std::int64_t place = std::int64_t{item.place} * params.lanes + lane_of_group;
  float* const part = params.partial_o + place * kRows * kDimVo;
  if (meeting && arrival == 0) return leave_first(params, place, counter, state, o, states_mine);
  if (item.place >= 0 && !meeting) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!states_mine || !rows.exists[h]) continue;
      params.partial_maximum[place * kRows + first + 8 * h] = state.maximum[h];
      params.partial_sum[place * kRows + first + 8 * h] = state.sum[h];
    }
    write_partial(o, part, room, warp_has_rows(params), warpgroup);
    return;
  }
  float own[2] = {1.0f, 1.0f};
  float other[2] = {0.0f, 0.0f};
  if (meeting) meet_first(params, place, counter, state, own, other);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool empty = state.maximum[h] == -INFINITY;
    const float inverse = inverse_of<Sinks>(params, state.maximum[h], state.sum[h],
                                            rows.exists[h] ? rows.head[h] : 0);
    own[h] *= inverse;
    other[h] *= inverse;
    if (params.lse != nullptr && states_mine && rows.exists[h])
      params.lse[static_cast<std::int64_t>(item.q_token + rows.token[h]) * params.lse_token_stride +
                 rows.head[h] * params.lse_head_stride] =
          empty ? -INFINITY : (state.maximum[h] + log2f(state.sum[h])) * kLn2;
  }
  const Destination<Element> to(params, item, rows, warpgroup);
  if (meeting)
    write_joined(o, part, warp_has_rows(params), own, other, to);
  else
    write_output(o, own, to);
}

template <class Keys, class Element>
__device__ void consume(Shared<Element>& shared, const Params& params, int w) {
  using Latent = typename Keys::Latent;
  const Share share = share_of(params);
  ptx::dependency_wait();
  const int other = w ^ 1;
  // Warpgroup w owns the tiles of stage w and the output columns of half w.
  const std::uint64_t q = ptx::wgmma_descriptor(shared.q[0]);
  const std::uint64_t q_own_half = q + w * kHalfPanels * kPanelStep;
  const std::uint64_t q_other_half = q + other * kHalfPanels * kPanelStep;
  const std::uint64_t k = ptx::wgmma_descriptor(shared.k[w][0]);
  const std::uint64_t k_own_half = k + w * kHalfPanels * kPanelStep;
  const std::uint64_t k_other_half = k + other * kHalfPanels * kPanelStep;
  const std::uint64_t p_given = ptx::wgmma_descriptor(shared.p[other]);
  const auto values = [&](int stage) {
    return ptx::wgmma_descriptor(shared.k[stage][w * kHalfPanels], kPanel * sizeof(Element));
  };
  const std::uint64_t v_own = values(w);
  const std::uint64_t v_given = values(other);

  std::uint32_t own_parity = 0;
  std::uint32_t given_parity = 0;
  std::uint32_t query_parity = 0;
  std::uint32_t tiles = 0;
  __half* const room = reinterpret_cast<__half*>(shared.p);
  Output o;
  RopeQuery rope;

  for (int i = share.begin; i < share.end; ++i) {
    attention::LatentItem item = params.items[i];
    if constexpr (Keys::kLists) fit_to_list(params, kKeys, item);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks) continue;
    const Rows rows = rows_of(params, item, block);
    RowState state;
    float factor[2];
#pragma unroll
    for (int j = 0; j < kDimVo / 4; ++j) o[j] = 0.0f;
    if (item.tile_begin >= item.tile_end) {
      finish<Keys::kSinks, Element>(shared.sum[i % 2], 0, params, item, rows, state, o, room,
                                    share.lane, w);
      continue;
    }

    if constexpr (Keys::kRope) {
      ptx::mbarrier_wait(shared.rope_full, query_parity);
      load_rope_query(rope, shared.p[0]);
      ptx::named_barrier_sync(kConsumerBarrier, kConsumers);
    }
    ptx::mbarrier_wait(shared.q_full, query_parity);
    query_parity ^= 1;
    if constexpr (!std::is_same_v<Latent, Element>) convert_queries(shared.q);
    // One tile, and not of this warpgroup: it has no scores to make.
    if (lane() == 0 && item.tile_end - item.tile_begin == 1 &&
        tiles % kStages != static_cast<std::uint32_t>(w))
      ptx::mbarrier_arrive(shared.q_empty);

    const auto clear_behind_last_key = [&](int tile, int stage) {
      const int valid = item.kv_len - tile * kKeys;
      if (!Keys::kClearsBehind && valid < kKeys)
        clear_values(shared.k[stage] + w * kHalfPanels, valid, w);
    };
    const auto piece_wait = [&](int stage, int piece, std::uint32_t parity) {
      ptx::mbarrier_wait(shared.k_full[stage][piece], parity);
      // What threads have copied is still to be shown to the products.
      if constexpr (!Keys::kFences) ptx::fence_proxy_async();
    };
    const auto start_scores = [&](Scores& s) {
      if constexpr (Keys::kRope) {
        piece_wait(w, kRopePiece, own_parity);
        ptx::wgmma_fence();
        issue_rope<Element>(s, rope, k + kRopePanel * kPanelStep);
      }
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        piece_wait(w, 1 + 2 * w + pair, own_parity);
        if (!Keys::kRope && pair == 0) ptx::wgmma_fence();
        issue_two_panels<Latent>(s, q_own_half + pair * 2 * kPanelStep,
                                 k_own_half + pair * 2 * kPanelStep, Keys::kRope || pair > 0);
      }
      ptx::wgmma_commit();
    };
    const auto go_on_with_scores = [&](Scores& s, int pair) {
      piece_wait(w, 1 + 2 * other + pair, own_parity);
      issue_two_panels<Latent>(s, q_other_half + pair * 2 * kPanelStep,
                               k_other_half + pair * 2 * kPanelStep, true);
      ptx::wgmma_commit();
    };
    // The other's tile: its maximum and probabilities are there, the output is ready for them.
    const auto take_given = [&](int tile) {
      ptx::named_barrier_sync(kReadyBarrier + other, kConsumers);
      const int first = 16 * warp_of_group() + lane() / 4;
      const float next[2] = {shared.maximum[other][first], shared.maximum[other][first + 8]};
      if (move_maximum(state, next, factor)) rescale(o, factor);
      piece_wait(other, 1 + 2 * w, given_parity);
      piece_wait(other, 2 + 2 * w, given_parity);
      given_parity ^= 1;
      clear_behind_last_key(tile, other);
      ptx::wgmma_fence();
      issue_given_pv<Latent, 0>(o, p_given, v_given);
      issue_given_pv<Latent, 1>(o, p_given, v_given);
      ptx::wgmma_commit();
    };
    const auto release_given = [&] {
      ptx::mbarrier_arrive_warp(shared.k_empty[other][1 + 2 * w]);
      ptx::mbarrier_arrive_warp(shared.k_empty[other][2 + 2 * w]);
    };
    // This warpgroup's tile, from its scores on.
    const auto use_scores = [&](Scores& s, int tile) {
      if constexpr (Keys::kRope) ptx::mbarrier_arrive_warp(shared.k_empty[w][kRopePiece]);
      if (lane() == 0 && tile + 2 >= item.tile_end) ptx::mbarrier_arrive(shared.q_empty);
      if ((tile + 1) * kKeys > rows.keys_of_all) apply_mask(s, rows, tile);
      float next[2];
      next_maximum(s, state, params.scale_log2, next);
      const bool moved = move_maximum(state, next, factor);
      Probabilities p;
      exponentiate<Latent>(s, state, params.scale_log2, p);
      publish(shared, w, p, state);
      if (moved) rescale(o, factor);
      clear_behind_last_key(tile, w);
      own_parity ^= 1;
      ptx::wgmma_fence();
      // In two, so that the first columns' room is back before the next tile needs it.
      issue_own_pv<Latent, 0>(o, p, v_own);
      ptx::wgmma_commit();
      issue_own_pv<Latent, 1>(o, p, v_own);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      ptx::mbarrier_arrive_warp(shared.k_empty[w][1 + 2 * w]);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(o);
      ptx::mbarrier_arrive_warp(shared.k_empty[w][2 + 2 * w]);
    };

    int tile = item.tile_begin;
    if (tiles % kStages == static_cast<std::uint32_t>(w)) {
      Scores s;
      start_scores(s);
      go_on_with_scores(s, 0);
      go_on_with_scores(s, 1);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(s);
      use_scores(s, tile);
      ++tile;
    }
    for (++tile; tile < item.tile_end; tile += 2) {
      Scores s;
      start_scores(s);
      take_given(tile - 1);
      go_on_with_scores(s, 0);
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(o);
      release_given();
      go_on_with_scores(s, 1);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(s);
      use_scores(s, tile);
    }
    if (tile == item.tile_end) {
      take_given(tile - 1);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(o);
      release_given();
    }
    tiles += static_cast<std::uint32_t>(item.tile_end - item.tile_begin);
    ptx::mbarrier_wait(shared.drawn, query_parity ^ 1);
    const std::int32_t arrival = shared.arrival;
    // A part needs the room in which the next rope queries arrive.
    const bool lends_room = item.place >= 0 && item.meeting < 0;
    if (!lends_room) ptx::mbarrier_arrive_warp(shared.rope_empty);
    finish<Keys::kSinks, Element>(shared.sum[i % 2], arrival, params, item, rows, state, o, room,
                                  share.lane, w);
    if (lends_room) {
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive_warp(shared.rope_empty);
    }
  }
}

template <class Element, template <class> class KeysOf>
__global__ void __launch_bounds__(KeysOf<Element>::Roles::kThreads, 1)
    mla_decode(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
               const __grid_constant__ Params params) {
  using Keys = KeysOf<Element>;
  Shared<Element>& shared = *reinterpret_cast<Shared<Element>*>(ptx::dynamic_shared<1024>());
  // Through a shuffle, so that the compiler knows it as one value a warp.
  const int warpgroup = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);

  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = kConsumers / 32;
    ptx::mbarrier_init(shared.q_full, 1);
    ptx::mbarrier_init(shared.q_empty, kConsumerWarps);
    ptx::mbarrier_init(shared.rope_full, 1);
    ptx::mbarrier_init(shared.rope_empty, kConsumerWarps);
    ptx::mbarrier_init(shared.drawn, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      for (int piece = 0; piece < kPieces; ++piece) {
        ptx::mbarrier_init(shared.k_full[stage][piece], Keys::arrivals(piece));
        ptx::mbarrier_init(shared.k_empty[stage][piece], kConsumerWarps / 2);
        if constexpr (Keys::kWidens)
          if (piece != kRopePiece)
            ptx::mbarrier_init(shared.k_raw[stage][piece - 1], Keys::kAskers);
      }
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch(q_map);
    if (Keys::kMapped) ptx::tma_prefetch(k_map);
  }
  __syncthreads();
  ptx::dependency_release();

  if (warpgroup < 2) {
    ptx::registers_take<Keys::Roles::kOfConsumer>();
    consume<Keys>(shared, params, warpgroup);
  } else if constexpr (!Keys::kWidens) {
    ptx::registers_give<Keys::Roles::kOfProducer>();
    if (threadIdx.x < kConsumers + Keys::kThreads) produce<Keys>(shared, params, q_map, k_map);
  } else if (warpgroup == 2) {
    ptx::registers_give<Keys::kOfWidener>();
    widen_packed<Keys>(shared, params);
  } else {
    ptx::registers_give<Keys::kOfAsker>();
    if constexpr (Keys::kLists)
      gather_packed(shared, params, q_map);
    else if (threadIdx.x == kConsumers + Keys::kThreads)
      ask_packed(shared, params, q_map, k_map);
  }
}

}  // namespace attune::kernels::mla_decode::sm90
