// Keys from the fp8 latent cache, 656 bytes a token: the copy engine brings the rope panel, and
// the producer's four warps widen the latents from registers to where the copy engine would have
// put them. A piece, two panels, is a block of 128 latents under one scale.
//
// They become fp16 (scales too: those that are no powers of two are rounded, to three bits more
// than FlashMLA's), which holds e4m3 times a power of two exactly and takes a conversion and a
// product a pair; bf16 would take six instructions. So the latent columns of queries become fp16
// too (convert_queries), and products of rope columns stay in bf16.
//
// Two pieces wait in registers for their room, so that a stage's refill is a matter of conversions
// and not of the memory's latency.
#pragma once

#include "attention/packed_latent.hpp"
#include "kernels/mla_decode/sm90/producer.cuh"
#include "kernels/ptx/widen.cuh"

namespace attune::kernels::mla_decode::sm90 {

namespace packed = attention::packed_latent;

template <class Element>
class PackedKeys {
 public:
  using Roles = sm90::Roles<128, 208, 88>;
  using Latent = __half;
  static constexpr bool kWidens = true;
  static constexpr bool kMapped = true;
  static constexpr bool kClearsBehind = true;
  // A writer's fence would wait for its loads under way.
  static constexpr bool kFences = false;
  static constexpr int kThreads = Roles::kProducers;
  static __device__ constexpr int arrivals(int piece) {
    return piece == kRopePiece ? 1 : kThreads / 32;
  }

  __device__ explicit PackedKeys(const Params& params) : params_(params) {}

  /// Takes what was asked for at the end of the item before, or asks.
  __device__ __forceinline__ void begin(int page, int stage) {
    if (page_ == page) return;
    page_ = page;
    fetch_scales(page);
    take_scales();
    fetch(0, page, 2 * stage);
    fetch(1, page, 2 * stage + 1);
  }

  [[nodiscard]] __device__ __forceinline__ int page() const { return page_; }

  /// Piece `order` of a tile, of which `valid` keys exist: the columns of block `block`. Asks for
  /// the piece after next: this tile's other half, then the own half of the next tile, on page
  /// `next` (-1 = none), which are the same columns.
  __device__ __forceinline__ void put(Element (*panels)[kPanel], int order, int block, int valid,
                                      int next, ptx::Mbarrier& full) {
    widen(order % 2, block, panels[2 * block + chunk() / 4], valid);
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(full);
    const int page = order < 2 ? page_ : next;
    if (page >= 0) fetch(order % 2, page, order < 2 ? block ^ 2 : block);
  }

  /// … and for its scales.
  __device__ __forceinline__ void fetch_scales(int page) {
    const int row = lane() / 2;
    const std::uint8_t* const from =
        row_at(page, 4 * warp_of_group() + row % 4 + row / 4 * kRowsAtOnce) + packed::kScalesAt;
    next_scales_ = __ldcg(reinterpret_cast<const float2*>(from) + lane() % 2);
  }

  /// A page is read soon.
  __device__ __forceinline__ void announce(int page) const {
    ptx::bulk_prefetch(row_at(page, 0), (kKeys - 1) * params_.k_token_stride + packed::kTokenBytes);
  }

  __device__ __forceinline__ void advance(int next) {
    page_ = next;
    take_scales();
  }

 private:
  // A warp has rows 4 (warp) + {0 … 3} + 16 i, each thread a 16-byte chunk of one of the four.
  // Eight neighbouring threads hold half of two rows, so that their stores meet all banks.
  static constexpr int kRowsAtOnce = kThreads / 8;
  static constexpr int kOfThread = kKeys / kRowsAtOnce;
  static __device__ __forceinline__ int chunk() { return lane() / 8 % 2 * 4 + lane() % 4; }
  static __device__ __forceinline__ int row_of_warp() { return lane() / 16 * 2 + lane() % 8 / 4; }
  static __device__ __forceinline__ int first_row() { return 4 * warp_of_group() + row_of_warp(); }

  __device__ __forceinline__ const std::uint8_t* row_at(int page, int row) const {
    return static_cast<const std::uint8_t*>(params_.k) + page * params_.k_page_stride +
           row * params_.k_token_stride;
  }

  __device__ __forceinline__ void fetch(int slot, int page, int block) {
    const std::uint8_t* const from =
        row_at(page, first_row()) + block * packed::kScaleBlock + chunk() * 16;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i)
      pieces_[slot][i] =
          __ldcg(reinterpret_cast<const uint4*>(from + kRowsAtOnce * i * params_.k_token_stride));
  }

  /// Of the warp's 16 rows four scales each: lane l holds two of row l / 2.
  __device__ __forceinline__ void take_scales() {
    scales_ = ptx::pack_pair<__half>(next_scales_.x, next_scales_.y);
  }
  /// Of the thread's row i, twice.
  __device__ __forceinline__ std::uint32_t scale_of(int i, int block) const {
    const std::uint32_t two =
        __shfl_sync(kAllLanes, scales_, 2 * (4 * i + row_of_warp()) + block / 2);
    return __byte_perm(two, 0, block % 2 == 0 ? 0x1010 : 0x3232);
  }

  __device__ __forceinline__ void widen(int slot, int block, Element* panel, int valid) {
    static_assert(kOfThread * 4 == 16, "two scales a lane");
    const int row = first_row();
    const int at = 2 * (chunk() % 4) ^ row % 8;
    Element* const to = panel + row * 64;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      std::uint32_t scale = scale_of(i, block);
      uint4 bytes = pieces_[slot][i];
      if (row + kRowsAtOnce * i >= valid) {
        bytes = make_uint4(0, 0, 0, 0);
        scale = 0;
      }
      uint4 low;
      uint4 high;
      ptx::widen_e4m3(bytes.x, scale, low.x, low.y);
      ptx::widen_e4m3(bytes.y, scale, low.z, low.w);
      ptx::widen_e4m3(bytes.z, scale, high.x, high.y);
      ptx::widen_e4m3(bytes.w, scale, high.z, high.w);
      *reinterpret_cast<uint4*>(to + kRowsAtOnce * i * 64 + at * 8) = low;
      *reinterpret_cast<uint4*>(to + kRowsAtOnce * i * 64 + (at ^ 1) * 8) = high;
    }
  }

  const Params& params_;
  int page_ = -1;
  uint4 pieces_[2][kOfThread];
  std::uint32_t scales_;  ///< of the page, in fp16
  float2 next_scales_;
};

/// Feeds both rings with packed keys. Items are read where they lie: what a loop over tiles keeps
/// of them would push pieces out of the few registers of a producer.
template <class Element>
__device__ void produce_packed(Shared<Element>& shared, const Params& params,
                               const CUtensorMap& q_map, const CUtensorMap& k_map) {
  const Share share = share_of(params);
  ptx::dependency_wait();
  PackedKeys<Element> keys(params);
  Errands<Element> errands(shared, params, q_map);
  const bool asks = threadIdx.x == kConsumers;
  const auto hint = params.lanes == 1 ? ptx::CacheHint::evict_first : ptx::CacheHint::evict_normal;
  std::uint32_t tiles = 0;
  for (int i = share.begin; i < share.end; ++i) {
    const attention::LatentItem* const item = params.items + i;
    if (item->first_block + share.lane >= item->num_blocks) continue;
    const int end = item->tile_end;
    int tile = item->tile_begin;
    if (tile >= end) continue;
    const std::int32_t* pages = params.kv_indices + item->entry_begin + tile;
    int valid = item->kv_len - tile * kKeys;
    // The page of the tile `ahead` of this one, the next item's behind the last; -1 = none.
    const auto page_of = [&](int ahead) {
      if (tile + ahead < end) return pages[ahead];
      const bool first = tile + ahead == end && i + 1 < share.end;
      return first && item[1].tile_begin < item[1].tile_end ? item[1].first_page : -1;
    };
    keys.begin(item->first_page, static_cast<int>(tiles % kStages));
    int next = page_of(1);
    if (asks && next >= 0) keys.announce(next);
    for (; tile < end; ++tile, ++tiles, ++pages, valid -= kKeys) {
      const int stage = static_cast<int>(tiles % kStages);
      const std::uint32_t parity = tiles / kStages % 2 ^ 1;
      // Read long before it is used.
      const int after = page_of(2);
      if (asks) {
        const int block = item->first_block + share.lane;
        const bool first = tile == item->tile_begin;
        if (first) errands.ask_queries(*item, block);
        ptx::mbarrier_wait(shared.k_empty[stage][kRopePiece], parity);
        ptx::mbarrier_arrive_expect(shared.k_full[stage][kRopePiece], kPanel * sizeof(Element));
        ptx::tma_load(shared.k[stage][kRopePanel], k_map, shared.k_full[stage][kRopePiece], hint, 0,
                      0, keys.page());
      }
      __syncwarp();
#pragma unroll
      for (int order = 0; order < 4; ++order) {
        const int block = 2 * (stage ^ order / 2) + order % 2;
        ptx::mbarrier_wait(shared.k_empty[stage][1 + block], parity);
        keys.put(shared.k[stage], order, block, valid, next, shared.k_full[stage][1 + block]);
        if (order == 0 && next >= 0) keys.fetch_scales(next);
      }
      keys.advance(next);
      next = after;
      if (asks) {
        if (after >= 0) keys.announce(after);
        if (tile == item->tile_begin) errands.ask_rope(*item, item->first_block + share.lane);
        if (tile + 1 == end) errands.draw(*item, share.lane);
      }
      __syncwarp();
    }
  }
}

}  // namespace attune::kernels::mla_decode::sm90
