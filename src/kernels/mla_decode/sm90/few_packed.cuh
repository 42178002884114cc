// The Hopper latent kernel for 16 or 32 rows over the fp8 cache, 656 bytes a token.
//
// Pages, or the tokens of a list, come as they are, and are widened on their way into the products, whose M side takes its
// operand from registers: nothing wide is ever in shared memory. Bytes are converted twice, as keys
// and as values, which costs fewer cycles than to store and load them widened. Two warpgroups take
// turns at tiles, each with a softmax and outputs of its own, so that one's latencies are the
// other's time; they join at the item's end.
//
// A product's order of inner elements and of rows is ours to choose: so that a thread's bytes are
// 16 neighbours, inner elements of scores are dealt to the four threads of a row in runs (queries
// are laid out to match), and a thread has 16 neighbouring columns of the outputs. Rows of 656
// bytes then meet every bank once.
//
// As in packed_keys.cuh latents and their queries are fp16, and rope columns bf16. A scale is a
// factor of its block's scores, and of values as they are widened.
#pragma once

#include "kernels/mla_decode/sm90/few_packed_collective.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/ring.cuh"

namespace attune::kernels::mla_decode::sm90::few {

/// An item's queries.
template <int Rows>
__device__ __forceinline__ void ask_packed_queries(PackedShared<Rows>& shared, const Params& params,
                                                   const CUtensorMap& q_map,
                                                   const attention::LatentItem& item, int block) {
  ptx::mbarrier_arrive_expect(
      shared.q_full,
      static_cast<std::uint32_t>(kPanels * params.heads_per_block * params.tokens_per_block * 128));
  for (int panel = 0; panel < kPanels; ++panel)
    ptx::tma_load(panel < kRopePanel ? static_cast<void*>(shared.q[panel]) : shared.q_rope, q_map,
                  shared.q_full, ptx::CacheHint::evict_normal, panel * 64,
                  block % params.head_blocks * params.heads_per_block,
                  item.q_token + block / params.head_blocks * params.tokens_per_block);
}

/// Who is first at the item's meeting, behind its last page.
template <int Rows>
__device__ __forceinline__ void draw_packed(PackedShared<Rows>& shared, const Params& params,
                                            const attention::LatentItem& item, int lane_of_group,
                                            std::uint32_t item_parity) {
  ptx::mbarrier_wait(shared.read, item_parity);
  if (item.meeting >= 0) shared.arrival = ptx::arrive_at(counter_of(params, item, lane_of_group));
  ptx::mbarrier_arrive(shared.drawn);
}

/// Brings queries and pages. A lane of the warp asks for all of it.
template <int Rows>
__device__ __forceinline__ void produce_packed(PackedShared<Rows>& shared, const Params& params,
                                               const CUtensorMap& q_map) {
  const Share share = share_of(params);
  ptx::dependency_wait();
  const auto hint = params.lanes == 1 ? ptx::CacheHint::evict_first : ptx::CacheHint::evict_normal;
  const bool dense = params.k_token_stride == packed::kTokenBytes;
  std::uint32_t tiles = 0;
  std::uint32_t item_parity = 1;
  for (int i = share.begin; i < share.end; ++i) {
    const attention::LatentItem item = item_of(params, share, i);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks || item.tile_begin >= item.tile_end) continue;
    bool wants_queries = true;
    int page = item.first_page;
    for (int tile = item.tile_begin; tile < item.tile_end; ++tile, ++tiles) {
      const int next =
          tile + 1 < item.tile_end ? params.kv_indices[item.entry_begin + tile + 1] : 0;
      if (wants_queries &&
          (tile + 1 == item.tile_end || ptx::mbarrier_test(shared.q_empty, item_parity))) {
        wants_queries = false;
        ptx::mbarrier_wait(shared.q_empty, item_parity);
        ask_packed_queries(shared, params, q_map, item, block);
      }
      const int stage = static_cast<int>(tiles % kPackedStages);
      ptx::mbarrier_wait(shared.k_empty[stage], tiles / kPackedStages % 2 ^ 1);
      ptx::mbarrier_arrive_expect(shared.k_full[stage], kPageBytes);
      const auto* from =
          static_cast<const std::uint8_t*>(params.k) + std::int64_t{page} * params.k_page_stride;
      if (dense) {
        constexpr int kRun = kPageBytes / 4;
        for (int run = 0; run < 4; ++run)
          ptx::bulk_load(shared.k[stage] + run * kRun, from + run * kRun, kRun,
                         shared.k_full[stage], hint);
      } else {
        for (int key = 0; key < kKeys; ++key)
          ptx::bulk_load(shared.k[stage] + key * packed::kTokenBytes,
                         from + key * params.k_token_stride, packed::kTokenBytes,
                         shared.k_full[stage], hint);
      }
      page = next;
    }
    draw_packed(shared, params, item, share.lane, item_parity);
    item_parity ^= 1;
  }
}

/// Of lists: each lane of the warp asks for two tokens of a tile.
template <int Rows>
__device__ __forceinline__ void produce_listed(PackedShared<Rows>& shared, const Params& params,
                                               const CUtensorMap& q_map) {
  constexpr int kOfLane = kKeys / 32;
  const Share share = share_of(params);
  ptx::dependency_wait();
  const auto hint = params.lanes == 1 ? ptx::CacheHint::evict_first : ptx::CacheHint::evict_normal;
  std::uint32_t tiles = 0;
  std::uint32_t item_parity = 1;
  for (int i = share.begin; i < share.end; ++i) {
    attention::LatentItem item = item_of(params, share, i);
    fit_to_list(params, kKeys, item);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks || item.tile_begin >= item.tile_end) continue;
    int slot[kOfLane];
    const auto look_up = [&](int tile) {
#pragma unroll
      for (int n = 0; n < kOfLane; ++n) {
        const int key = tile * kKeys + 32 * n + lane();
        slot[n] = key < item.kv_len ? params.kv_indices[item.entry_begin + key] : -1;
      }
    };
    look_up(item.tile_begin);
    bool wants_queries = lane() == 0;
    for (int tile = item.tile_begin; tile < item.tile_end; ++tile, ++tiles) {
      if (wants_queries &&
          (tile + 1 == item.tile_end || ptx::mbarrier_test(shared.q_empty, item_parity))) {
        wants_queries = false;
        ptx::mbarrier_wait(shared.q_empty, item_parity);
        ask_packed_queries(shared, params, q_map, item, block);
      }
      const int stage = static_cast<int>(tiles % kPackedStages);
      ptx::mbarrier_wait(shared.k_empty[stage], tiles / kPackedStages % 2 ^ 1);
      if (lane() == 0) {
        const int valid = max(0, min(kKeys, item.kv_len - tile * kKeys));
        ptx::mbarrier_arrive_expect(shared.k_full[stage],
                                    static_cast<std::uint32_t>(valid * packed::kTokenBytes));
      }
      __syncwarp();
#pragma unroll
      for (int n = 0; n < kOfLane; ++n)
        if (slot[n] >= 0)
          ptx::bulk_load(shared.k[stage] + (32 * n + lane()) * packed::kTokenBytes,
                         static_cast<const std::uint8_t*>(params.k) +
                             std::int64_t{slot[n]} * params.k_page_stride,
                         packed::kTokenBytes, shared.k_full[stage], hint);
      look_up(tile + 1);
    }
    if (lane() == 0) draw_packed(shared, params, item, share.lane, item_parity);
    item_parity ^= 1;
  }
}

template <int N, bool Lists>
__device__ void consume_packed(PackedShared<N>& shared, const Params& params, int group) {
  const Share share = share_of(params);
  ptx::dependency_wait();
  const std::uint64_t q = ptx::wgmma_descriptor(shared.q[0]);
  const std::uint64_t q_rope = ptx::wgmma_descriptor(shared.q_rope);
  const std::uint64_t p = ptx::wgmma_descriptor(shared.p[group]);
  std::uint32_t tiles = 0;
  std::uint32_t item_parity = 0;
  Output<N> o;
  for (int i = share.begin; i < share.end; ++i) {
    attention::LatentItem item = item_of(params, share, i);
    if constexpr (Lists) fit_to_list(params, kKeys, item);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks) continue;
    RowState<N> state;
    clear<N>(o);
    if (item.tile_begin >= item.tile_end) {
      if (group == 0)
        finish<ByThreads, false, __nv_bfloat16, N>(shared.sum[i % 2], 0, params, item, block,
                                                   share.lane, state, o);
      continue;
    }
    const int all = keys_of_all(params, item, block);
    ptx::mbarrier_wait(shared.q_full, item_parity);
    arrange_queries(shared);
    const int count = item.tile_end - item.tile_begin;
    if (group >= count) ptx::mbarrier_arrive_warp(shared.q_empty);
    for (int n = group; n < count; n += kPackedGroups) {
      const int tile = item.tile_begin + n;
      const std::uint32_t at = tiles + static_cast<std::uint32_t>(n);
      const int stage = static_cast<int>(at % kPackedStages);
      std::uint8_t* const page = shared.k[stage];
      // A part behind the end of its list has a tile without keys.
      const int valid = max(0, min(kKeys, item.kv_len - tile * kKeys));
      Scores<N> s;
      ptx::mbarrier_wait(shared.k_full[stage], at / kPackedStages % 2);
      page_scores<N>(s, page, q, q_rope, shared.scales[group], valid);
      if (n + kPackedGroups >= count) ptx::mbarrier_arrive_warp(shared.q_empty);
      if ((tile + 1) * kKeys > all) apply_mask<N>(s, params, item, block, tile);
      RowValues<N> top;
      RowValues<N> factor;
      tile_maximum<N>(s, shared.maximum[group], top);
      const bool moved = move_maximum<N>(state, top, params.scale_log2, factor);
      exponentiate<__half, N>(s, state, params.scale_log2, shared.p[group]);
      // Values behind the last key may be NaN, and 0 * NaN is not 0.
      for (int c = valid * 32 + static_cast<int>(threadIdx.x % 128); c < kKeys * 32; c += 128)
        *reinterpret_cast<uint4*>(page + c / 32 * packed::kTokenBytes + c % 32 * 16) =
            make_uint4(0, 0, 0, 0);
      ptx::fence_proxy_async();
      if (moved) rescale<N>(o, factor);
      meet_group();
      page_values<N>(o, page, p, shared.scales[group],
                     [&] { ptx::mbarrier_arrive_warp(shared.k_empty[stage]); });
    }
    tiles += static_cast<std::uint32_t>(count);
    item_parity ^= 1;
    // An item of one tile is the first warpgroup's.
    const bool shared_work = count > 1;
    if (group != 0) {
      if (shared_work) hand_over(shared, o, state);
      continue;
    }
    if (shared_work) take_over(shared, o, state);
    ptx::mbarrier_wait(shared.drawn, item_parity ^ 1);
    const std::int32_t arrival = shared.arrival;
    ptx::mbarrier_arrive_warp(shared.read);
    finish<ByThreads, false, __nv_bfloat16, N>(shared.sum[i % 2], arrival, params, item, block,
                                               share.lane, state, o);
  }
}

template <int Rows, bool Lists>
__global__ void __launch_bounds__(PackedRoles::kThreads, 1)
    mla_decode_few_packed(const __grid_constant__ CUtensorMap q_map,
                          const __grid_constant__ CUtensorMap,
                          const __grid_constant__ Params params) {
  auto& shared = *reinterpret_cast<PackedShared<Rows>*>(ptx::dynamic_shared<1024>());
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(shared.q_full, 1);
    ptx::mbarrier_init(shared.q_empty, kPackedConsumers / 32);
    ptx::mbarrier_init(shared.drawn, 1);
    ptx::mbarrier_init(shared.read, 4);
    for (int stage = 0; stage < kPackedStages; ++stage) {
      ptx::mbarrier_init(shared.k_full[stage], 1);
      ptx::mbarrier_init(shared.k_empty[stage], 4);
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch(q_map);
  }
  __syncthreads();
  ptx::dependency_release();
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);
  if (group < kPackedGroups) {
    ptx::registers_take<PackedRoles::kOfConsumer>();
    consume_packed<Rows, Lists>(shared, params, group);
  } else {
    ptx::registers_give<PackedRoles::kOfProducer>();
    if constexpr (Lists) {
      if (threadIdx.x < kPackedConsumers + 32) produce_listed(shared, params, q_map);
    } else if (threadIdx.x == kPackedConsumers) {
      produce_packed(shared, params, q_map);
    }
  }
}

}  // namespace attune::kernels::mla_decode::sm90::few
