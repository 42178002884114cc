// The Hopper latent kernel for queries in e4m3 over latents in e4m3, one scale for all: 16, 32 or 64
// rows a block, tiles of 64 keys, 576 bytes a key.
//
// Scores are products of bytes, twice as fast as those of 16 bits, over keys as they arrive. Values
// meet probabilities in fp16, on the M side of O^T = V^T P^T: its operand may come from registers,
// where ldmatrix transposes bytes by pairs and a conversion widens them. So no value is ever stored
// widened or transposed, probabilities keep fp16's bits, and the accumulators fp32's: sums of
// products of bytes are cut to 14 bits, which a row of thousands of keys would feel.
//
// Two warpgroups have half of the columns each and take turns at probabilities, which both use:
//
//   w owns tile t:  softmax of t, handed over | Q K_{t+2}^T under way | P_{t-1} V_{t-1} | P_t V_t
//
// Keys come four tiles deep, by the copy engine. Few rows have the same scores, whose other rows are
// nobody's, and columns of values' products for their own alone.
#pragma once

#include "kernels/mla_decode/sm90/e4m3_finish.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/ring.cuh"

namespace attune::kernels::mla_decode::sm90::e4m3 {

/// An item's queries. The maps count pairs of bytes.
__device__ __forceinline__ void ask_queries(Shared& shared, const Params& params,
                                            const CUtensorMap& q_map,
                                            const attention::LatentItem& item, int block) {
  ptx::mbarrier_arrive_expect(shared.q_full,
                              static_cast<std::uint32_t>(kPanels * params.heads_per_block *
                                                         params.tokens_per_block * kColumns));
  for (int panel = 0; panel < kPanels; ++panel)
    ptx::tma_load(shared.q[panel], q_map, shared.q_full, ptx::CacheHint::evict_normal,
                  panel * kColumns / 2, block % params.head_blocks * params.heads_per_block,
                  item.q_token + block / params.head_blocks * params.tokens_per_block);
}

/// One thread asks for everything, and draws.
__device__ __forceinline__ void produce(Shared& shared, const Params& params,
                                        const CUtensorMap& q_map, const CUtensorMap& k_map) {
  const Share share = share_of(params);
  ptx::dependency_wait();
  const auto hint = params.lanes == 1 ? ptx::CacheHint::evict_first : ptx::CacheHint::evict_normal;
  std::uint32_t tiles = 0;
  std::uint32_t item_parity = 1;
  for (int i = share.begin; i < share.end; ++i) {
    const attention::LatentItem item = item_of(params, share, i);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks || item.tile_begin >= item.tile_end) continue;
    // As soon as there is room, but no key waits for it.
    bool wants_queries = true;
    int page = item.first_page;
    for (int tile = item.tile_begin; tile < item.tile_end; ++tile, ++tiles) {
      const int next =
          tile + 1 < item.tile_end ? params.kv_indices[item.entry_begin + tile + 1] : 0;
      if (wants_queries &&
          (tile + 1 == item.tile_end || ptx::mbarrier_test(shared.q_empty, item_parity))) {
        wants_queries = false;
        ptx::mbarrier_wait(shared.q_empty, item_parity);
        ask_queries(shared, params, q_map, item, block);
      }
      const int stage = static_cast<int>(tiles % kStages);
      ptx::mbarrier_wait(shared.k_empty[stage], tiles / kStages % 2 ^ 1);
      ptx::mbarrier_arrive_expect(shared.k_full[stage], kPanels * kPanelBytes);
      for (int panel = 0; panel < kPanels; ++panel)
        ptx::tma_load(shared.k[stage][panel], k_map, shared.k_full[stage], hint,
                      panel * kColumns / 2, 0, page);
      page = next;
    }
    // Behind its last page: the second at a meeting waits for the first.
    ptx::mbarrier_wait(shared.read, item_parity);
    if (item.meeting >= 0) shared.arrival = ptx::arrive_at(counter_of(params, item, share.lane));
    ptx::mbarrier_arrive(shared.drawn);
    item_parity ^= 1;
  }
}

template <int N>
__device__ __forceinline__ void consume(Shared& shared, const Params& params, int w) {
  const Share share = share_of(params);
  ptx::dependency_wait();
  const std::uint64_t q = ptx::wgmma_descriptor(shared.q[0]);
  const std::uint64_t k = ptx::wgmma_descriptor(shared.k[0][0]);
  const std::uint64_t p = ptx::wgmma_descriptor(shared.p[0]);
  std::uint32_t tiles = 0;
  std::uint32_t item_parity = 0;
  Output<N> o;

  for (int i = share.begin; i < share.end; ++i) {
    const attention::LatentItem item = item_of(params, share, i);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks) continue;
    const Rows rows = rows_of(params, item, block);
    RowState state;
#pragma unroll
    for (int b = 0; b < kChunks; ++b)
#pragma unroll
      for (int j = 0; j < N / 2; ++j) o[b][j] = 0.0f;
    if (item.tile_begin >= item.tile_end) {
      finish<N>(shared, 0, params, item, block, rows, state, o, share.lane, w);
      continue;
    }
    ptx::mbarrier_wait(shared.q_full, item_parity);
    const bool owns_first = tiles % kGroups == static_cast<std::uint32_t>(w);
    // One tile, and not of this warpgroup: it has no scores to make.
    if (item.tile_end - item.tile_begin == 1 && !owns_first)
      ptx::mbarrier_arrive_warp(shared.q_empty);

    const auto number_of = [&](int tile) {
      return tiles + static_cast<std::uint32_t>(tile - item.tile_begin);
    };
    const auto start_scores = [&](Scores& s, int tile) {
      const std::uint32_t number = number_of(tile);
      const std::uint32_t stage = number % kStages;
      ptx::mbarrier_wait(shared.k_full[stage], number / kStages % 2);
      ptx::wgmma_fence();
      issue_scores(s, q, k + stage * (kPanels * kPanelStep));
    };
    const auto place_of_tile = [&](int tile) { return static_cast<int>(number_of(tile) % kGiven); };
    // The other's tile: its maxima and probabilities are there.
    const auto meet_given = [&](int tile) {
      ptx::named_barrier_sync(kReadyBarrier + (w ^ 1), kConsumers);
      const float(&maximum)[kRows] = shared.maximum[place_of_tile(tile)];
      const int first = 16 * warp_of_group() + lane() / 4;
      const float next[2] = {maximum[first], maximum[first + 8]};
      float factor[2];
      move_maximum(state, next, factor);
      const std::uint32_t number = number_of(tile);
      ptx::mbarrier_wait(shared.k_full[number % kStages], number / kStages % 2);
    };
    const auto take = [&](int tile) {
      const int place = place_of_tile(tile);
      const auto stage = static_cast<int>(number_of(tile) % kStages);
      rescale<N>(o, shared, place);
      auto* const panels = shared.k[stage] + w * (kLatentPanels / kGroups);
      const int valid = item.kv_len - tile * kKeys;
      if (valid < kKeys) clear_values(panels, valid, w);
      add_values<N>(o, panels, p + static_cast<std::uint32_t>(place) * (kRows * kKeys * 2 >> 4),
                    [&] { ptx::mbarrier_arrive_warp(shared.k_empty[stage]); });
    };
    const auto use_scores = [&](Scores& s, int tile) {
      if ((tile + 1) * kKeys > rows.keys_of_all) apply_mask(s, rows, tile);
      float next[2];
      float factor[2];
      next_maximum(s, state, params.scale_log2, next);
      move_maximum(state, next, factor);
      Probabilities probabilities;
      exponentiate<__half>(s, state, params.scale_log2, probabilities);
      const bool moved = __any_sync(kAllLanes, (rows.exists[0] && factor[0] != 1.0f) ||
                                                   (rows.exists[1] && factor[1] != 1.0f)) != 0;
      publish(shared, w, place_of_tile(tile), probabilities, state, factor, moved);
    };

    int tile = item.tile_begin + (owns_first ? 0 : 1);
    Scores s;
    if (tile < item.tile_end) start_scores(s, tile);
    wait_for_products<N>(o, s);
    for (; tile < item.tile_end; tile += kGroups) {
      const bool has_given = tile > item.tile_begin;
      if (has_given) meet_given(tile - 1);
      use_scores(s, tile);
      if (has_given) {
        take(tile - 1);
        wait_for_products<N>(o, s);
      }
      if (tile + kGroups < item.tile_end)
        start_scores(s, tile + kGroups);
      else
        ptx::mbarrier_arrive_warp(shared.q_empty);
      take(tile);
      wait_for_products<N>(o, s);
    }
    if (tile == item.tile_end) {
      meet_given(tile - 1);
      take(tile - 1);
      wait_for_products<N>(o, s);
    }
    tiles += static_cast<std::uint32_t>(item.tile_end - item.tile_begin);
    item_parity ^= 1;
    ptx::mbarrier_wait(shared.drawn, item_parity ^ 1);
    const std::int32_t arrival = shared.arrival;
    ptx::mbarrier_arrive_warp(shared.read);
    finish<N>(shared, arrival, params, item, block, rows, state, o, share.lane, w);
  }
}

template <int N>
__global__ void __launch_bounds__(Roles::kThreads, 1)
    mla_decode_e4m3(const __grid_constant__ CUtensorMap q_map,
                    const __grid_constant__ CUtensorMap k_map,
                    const __grid_constant__ Params params) {
  auto& shared = *reinterpret_cast<Shared*>(ptx::dynamic_shared<1024>());
  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = kConsumers / 32;
    ptx::mbarrier_init(shared.q_full, 1);
    ptx::mbarrier_init(shared.q_empty, kConsumerWarps);
    ptx::mbarrier_init(shared.drawn, 1);
    ptx::mbarrier_init(shared.read, kConsumerWarps);
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(shared.k_full[stage], 1);
      ptx::mbarrier_init(shared.k_empty[stage], kConsumerWarps);
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch(q_map);
    ptx::tma_prefetch(k_map);
  }
  __syncthreads();
  ptx::dependency_release();
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);
  if (group < kGroups) {
    ptx::registers_take<Roles::kOfConsumer>();
    consume<N>(shared, params, group);
  } else {
    ptx::registers_give<Roles::kOfProducer>();
    if (threadIdx.x == kConsumers) produce(shared, params, q_map, k_map);
  }
}

}  // namespace attune::kernels::mla_decode::sm90::e4m3
