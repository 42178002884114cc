// The Hopper latent kernel for few rows: 16 or 32 (token, head) pairs, where the memory is the
// bound and all that counts is how much of it is under way.
//
// Keys are on the M side of both products, so that no row of a product is empty: a tile costs 1100
// to 1400 cycles of shared memory where 64 rows would take 2300, and the 3700 that its 72 KB take
// from memory leave time to spare. So one warpgroup does everything, one step after another, and
// what shared memory is left is a ring of panels that are asked for again as soon as they are used.
#pragma once

#include "kernels/mla_decode/sm90/few_finish.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/ring.cuh"

namespace attune::kernels::mla_decode::sm90::few {

inline constexpr std::uint64_t kPanelStep = kPanel * 2 >> 4;
inline constexpr std::uint64_t kColumnStep = 16 * 2 >> 4;
inline constexpr std::uint64_t kRowStep = 16 * 128 >> 4;

/// Of queries and of keys.
template <class Keys>
inline constexpr int kPanelsOf = Keys::kRope ? kPanels : kLatentPanels;

template <int Rows, class Keys, class Element>
__device__ __forceinline__ void ask_queries(Shared<Element, Rows>& shared, const Params& params,
                                            const CUtensorMap& q_map,
                                            const attention::LatentItem& item, int block) {
  ptx::mbarrier_arrive_expect(
      shared.q_full, static_cast<std::uint32_t>(kPanelsOf<Keys> * params.heads_per_block *
                                                params.tokens_per_block * 64 * sizeof(Element)));
  for (int panel = 0; panel < kPanelsOf<Keys>; ++panel)
    ptx::tma_load(shared.q[panel], q_map, shared.q_full, ptx::CacheHint::evict_normal, panel * 64,
                  block % params.head_blocks * params.heads_per_block,
                  item.q_token + block / params.head_blocks * params.tokens_per_block);
}

template <int Rows, class Keys, class Element>
__device__ void produce(Shared<Element, Rows>& shared, const Params& params,
                        const CUtensorMap& q_map, const CUtensorMap& k_map) {
  // The lists are older than the kernel in front.
  const Share share = share_of(params);
  attention::LatentItem item = item_of(params, share, share.begin);
  ptx::dependency_wait();
  Keys keys(params, k_map);
  const bool asks = threadIdx.x == kConsumers;
  ptx::Ring<kSlots<Rows>> ring{.stage = 0, .parity = 1};
  std::uint32_t item_parity = 1;
  for (int i = share.begin; i < share.end; ++i) {
    if (i > share.begin) item = params.items[i];
    if constexpr (Keys::kLists) fit_to_list(params, kKeys, item);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks || item.tile_begin >= item.tile_end) continue;
    // As soon as there is room, but no key waits for it.
    bool wants_queries = asks;
    keys.begin(item);
    int tile = item.tile_begin;
    if (Keys::kThreads == 1 && i == share.begin) {
      // There is room for all of it, so that nothing waits and a panel takes a few instructions;
      // the loop's sixty are 0.1 us, of which a short request would see nine.
      ask_queries<Rows, Keys>(shared, params, q_map, item, block);
      wants_queries = false;
      constexpr int kFirstPiece = kPanels - kPanelsOf<Keys>;
#pragma unroll
      for (int slot = 0; slot < kPanelsOf<Keys>; ++slot) {
        const int piece = kFirstPiece + slot;
        keys.template load<1>(shared.k + slot, piece == 0 ? kRopePanel : piece - 1,
                              shared.k_full[slot]);
      }
      ring.stage = kPanelsOf<Keys>;
      keys.look_ahead(item, tile);
      keys.advance();
      ++tile;
    }
    for (; tile < item.tile_end; ++tile) {
      keys.look_ahead(item, tile);
      // Rope first: the order in which room is returned.
#pragma unroll 1
      for (int piece = kPanels - kPanelsOf<Keys>; piece < kPanels; ++piece, ring.advance()) {
        const bool last = piece + 1 == kPanels && tile + 1 == item.tile_end;
        if (wants_queries && (last || ptx::mbarrier_test(shared.q_empty, item_parity))) {
          ptx::mbarrier_wait(shared.q_empty, item_parity);
          ask_queries<Rows, Keys>(shared, params, q_map, item, block);
          wants_queries = false;
        }
        ptx::mbarrier_wait(shared.k_empty[ring.stage], ring.parity);
        keys.template load<1>(shared.k + ring.stage, piece == 0 ? kRopePanel : piece - 1,
                              shared.k_full[ring.stage]);
      }
      keys.advance();
    }
    if (asks) {
      // The second at a meeting waits for the first.
      ptx::mbarrier_wait(shared.read, item_parity);
      if (item.meeting >= 0) shared.arrival = ptx::arrive_at(counter_of(params, item, share.lane));
      ptx::mbarrier_arrive(shared.drawn);
    }
    item_parity ^= 1;
  }
}

/// Panels' room, as their products end one after another.
template <int Rows, class Element, int Panel = 0>
__device__ __forceinline__ void give_back_values(Shared<Element, Rows>& shared,
                                                 ptx::Ring<kSlots<Rows>>& ring) {
  ptx::wgmma_wait<kLatentPanels - 1 - Panel>();
  ptx::mbarrier_arrive_warp(shared.k_empty[ring.stage]);
  ring.advance();
  if constexpr (Panel + 1 < kLatentPanels) give_back_values<Rows, Element, Panel + 1>(shared, ring);
}

/// Zeros the values behind the last key: they may hold NaN, and 0 * NaN is not 0. Nobody reads the
/// tile as keys any more.
template <int Rows, class Element>
__device__ __forceinline__ void clear_values(Shared<Element, Rows>& shared,
                                             ptx::Ring<kSlots<Rows>> ring, int valid) {
  const int chunks = (kKeys - valid) * 8;
#pragma unroll 1
  for (int panel = 0; panel < kLatentPanels; ++panel, ring.advance())
    for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kConsumers)
      reinterpret_cast<uint4*>(shared.k[ring.stage])[valid * 8 + i] = make_uint4(0, 0, 0, 0);
}

template <int Rows, class Keys, class Element>
__device__ void consume(Shared<Element, Rows>& shared, const Params& params) {
  using ptx::Major;
  const Share share = share_of(params);
  ptx::dependency_wait();
  const std::uint64_t q = ptx::wgmma_descriptor(shared.q[0]);
  const std::uint64_t k = ptx::wgmma_descriptor(shared.k[0]);
  const std::uint64_t p = ptx::wgmma_descriptor(shared.p);
  constexpr std::uint64_t kQueryStep = Rows * 128 >> 4;
  constexpr int kFirstPiece = kPanels - kPanelsOf<Keys>;
  ptx::Ring<kSlots<Rows>> ring;
  std::uint32_t item_parity = 0;
  Output<Rows> o;

  for (int i = share.begin; i < share.end; ++i) {
    attention::LatentItem item = item_of(params, share, i);
    if constexpr (Keys::kLists) fit_to_list(params, kKeys, item);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks) continue;
    RowState<Rows> state;
    clear<Rows>(o);
    if (item.tile_begin >= item.tile_end) {
      finish<ByPanels, Keys::kSinks, Element, Rows>(shared.sum[i % 2], 0, params, item, block,
                                                    share.lane, state, o);
      continue;
    }
    const int all = keys_of_all(params, item, block);
    ptx::mbarrier_wait(shared.q_full, item_parity);
    for (int tile = item.tile_begin; tile < item.tile_end; ++tile) {
      Scores<Rows> s;
      ptx::Ring<kSlots<Rows>> at = ring;
#pragma unroll
      for (int piece = kFirstPiece; piece < kPanels; ++piece, at.advance()) {
        ptx::mbarrier_wait(shared.k_full[at.stage], at.parity);
        // What threads have copied is still to be shown to the products.
        if constexpr (!Keys::kFences) ptx::fence_proxy_async();
        ptx::wgmma_fence();
        const std::uint64_t keys = k + static_cast<std::uint32_t>(at.stage) * kPanelStep;
        const std::uint64_t queries = q + (piece == 0 ? kRopePanel : piece - 1) * kQueryStep;
#pragma unroll
        for (int step = 0; step < 4; ++step)
          ptx::narrow::wgmma_ss<Element, Rows, Major::k, Major::k>(s, keys + step * kColumnStep,
                                                                   queries + step * kColumnStep,
                                                                   piece + step > kFirstPiece);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(s);
      if constexpr (Keys::kRope) {
        ptx::mbarrier_arrive_warp(shared.k_empty[ring.stage]);
        ring.advance();
      }
      if (lane() == 0 && tile + 1 == item.tile_end) ptx::mbarrier_arrive(shared.q_empty);

      if ((tile + 1) * kKeys > all) apply_mask<Rows>(s, params, item, block, tile);
      RowValues<Rows> top;
      RowValues<Rows> factor;
      tile_maximum<Rows>(s, shared.maximum, top);
      const bool moved = move_maximum<Rows>(state, top, params.scale_log2, factor);
      exponentiate<Element, Rows>(s, state, params.scale_log2, shared.p);
      if (!Keys::kClearsBehind && item.kv_len - tile * kKeys < kKeys)
        clear_values<Rows>(shared, ring, item.kv_len - tile * kKeys);
      ptx::fence_proxy_async();
      if (moved) rescale<Rows>(o, factor);
      meet_group();

      ptx::wgmma_fence();
      at = ring;
#pragma unroll
      for (int panel = 0; panel < kLatentPanels; ++panel, at.advance()) {
        const std::uint64_t values = k + static_cast<std::uint32_t>(at.stage) * kPanelStep;
#pragma unroll
        for (int step = 0; step < 4; ++step)
          ptx::narrow::wgmma_ss<Element, Rows, Major::mn, Major::k>(
              o[panel], values + step * kRowStep, p + step * kColumnStep, true);
        ptx::wgmma_commit();
      }
      give_back_values<Rows>(shared, ring);
#pragma unroll
      for (int panel = 0; panel < kLatentPanels; ++panel) ptx::wgmma_pin(o[panel]);
    }
    ptx::mbarrier_wait(shared.drawn, item_parity);
    item_parity ^= 1;
    const std::int32_t arrival = shared.arrival;
    ptx::mbarrier_arrive_warp(shared.read);
    finish<ByPanels, Keys::kSinks, Element, Rows>(shared.sum[i % 2], arrival, params, item, block,
                                                  share.lane, state, o);
  }
}

template <class Keys>
inline constexpr int kThreads = kConsumers + (Keys::kThreads == 1 ? 32 : Keys::kThreads);

template <class Element, template <class> class KeysOf, int Rows>
__global__ void __launch_bounds__(kThreads<KeysOf<Element>>, 1)
    mla_decode_few(const __grid_constant__ CUtensorMap q_map,
                   const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ Params params) {
  using Keys = KeysOf<Element>;
  auto& shared = *reinterpret_cast<Shared<Element, Rows>*>(ptx::dynamic_shared<1024>());
  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = kConsumers / 32;
    ptx::mbarrier_init(shared.q_full, 1);
    ptx::mbarrier_init(shared.q_empty, kConsumerWarps);
    ptx::mbarrier_init(shared.drawn, 1);
    ptx::mbarrier_init(shared.read, kConsumerWarps);
    for (int slot = 0; slot < kSlots<Rows>; ++slot) {
      ptx::mbarrier_init(shared.k_full[slot], Keys::arrivals(1));
      ptx::mbarrier_init(shared.k_empty[slot], kConsumerWarps);
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch(q_map);
    if (Keys::kMapped) ptx::tma_prefetch(k_map);
  }
  __syncthreads();
  ptx::dependency_release();
  const int warp_of_block = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 32), 0);
  if (warp_of_block < kConsumers / 32)
    consume<Rows, Keys>(shared, params);
  else if (threadIdx.x < kConsumers + Keys::kThreads)
    produce<Rows, Keys>(shared, params, q_map, k_map);
}

}  // namespace attune::kernels::mla_decode::sm90::few
