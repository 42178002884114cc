// Keys from the fp8 latent cache, 656 bytes a token. A thread asks the copy engine for rope panels
// and for latents as they are, a piece (128 latents under one scale) at a time into the second panel
// of the piece's own room; four warps widen each where it lies, to where the copy engine would have
// put 16-bit numbers. Keys of lists are brought by four more warps, a thread 16 bytes.
//
// They become fp16 (scales too: those that are no powers of two are rounded, to three bits more
// than FlashMLA's), which holds e4m3 times a power of two exactly and takes a conversion and a
// product a pair; bf16 would take six instructions. So the latent columns of queries become fp16
// too (convert_queries), and products of rope columns stay in bf16.
#pragma once

#include "attention/packed_latent.hpp"
#include "kernels/mla_decode/sm90/producer.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/widen.cuh"

namespace attune::kernels::mla_decode::sm90 {

namespace packed = attention::packed_latent;

/// Of pages, or of lists of slots, one a key.
template <class Element, bool Lists>
class WidenedKeys {
 public:
  static constexpr int kThreads = 128;  ///< that widen; the warpgroup behind them asks
  using Roles = sm90::Roles<2 * kThreads, 208, 48>;
  static constexpr int kOfWidener = 56;
  static constexpr int kOfAsker = 40;
  static_assert(kOfWidener + kOfAsker == 2 * Roles::kOfProducer);
  using Latent = __half;
  static constexpr bool kWidens = true;
  static constexpr bool kMapped = !Lists;
  static constexpr bool kLists = Lists;
  static constexpr bool kRope = true;
  static constexpr bool kSinks = false;
  static constexpr bool kClearsBehind = true;
  // Fences of the four warps that widen are in their way: 3 % slower than the readers'.
  static constexpr bool kFences = false;
  /// Of those that ask, at a barrier of what arrives as it is.
  static constexpr int kAskers = Lists ? kThreads : 1;
  static __device__ constexpr int arrivals(int piece) {
    return piece == kRopePiece ? kAskers : kThreads / 32;
  }

  /// Of a tile, the thread's: a thread has what becomes a row of one panel.
  static __device__ __forceinline__ int row() {
    return 16 * warp_of_group() + lane() / 16 * 8 + lane() % 8;
  }

  __device__ explicit WidenedKeys(const Params& params) : params_(params) {}

  /// Before a tile: its scales, which may have been asked for already. `place`: its page, or the
  /// slot of the thread's row; -1 where there is no key.
  __device__ __forceinline__ void begin(int place) {
    if (place >= 0 && asked_ != place) ask_scales(place);
    scales_[0] = ptx::pack_pair<__half>(next_scales_.x, next_scales_.y);
    scales_[1] = ptx::pack_pair<__half>(next_scales_.z, next_scales_.w);
  }

  /// Of the thread's row.
  __device__ __forceinline__ void ask_scales(int place) {
    asked_ = place;
    next_scales_ = __ldcg(reinterpret_cast<const float4*>(
        static_cast<const std::uint8_t*>(params_.k) + place * params_.k_page_stride +
        (Lists ? 0 : row() * params_.k_token_stride) + packed::kScalesAt));
  }

  /// Block `block` of a tile of which `valid` keys exist, in its two panels. A warp's rows meet no
  /// other's.
  __device__ __forceinline__ void widen(Element (*panels)[kPanel], int block, int valid) const {
    std::uint32_t scale =
        __byte_perm(block < 2 ? scales_[0] : scales_[1], 0, block % 2 == 0 ? 0x1010 : 0x3232);
    const int swizzle = row() % 8;
    const auto* const from = reinterpret_cast<const uint4*>(panels[1] + row() * 64);
    uint4 bytes[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) bytes[i] = from[(kChunks * part() + i) ^ swizzle];
    __syncwarp();
    if (row() >= valid) {
#pragma unroll
      for (int i = 0; i < kChunks; ++i) bytes[i] = make_uint4(0, 0, 0, 0);
      scale = 0;
      asm volatile("");  // a branch for what is rare, not selections always
    }
    auto* const to = reinterpret_cast<uint4*>(panels[part()] + row() * 64);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      uint4 low;
      uint4 high;
      ptx::widen_e4m3(bytes[i].x, scale, low.x, low.y);
      ptx::widen_e4m3(bytes[i].y, scale, low.z, low.w);
      ptx::widen_e4m3(bytes[i].z, scale, high.x, high.y);
      ptx::widen_e4m3(bytes[i].w, scale, high.z, high.w);
      to[(2 * i) ^ swizzle] = low;
      to[(2 * i + 1) ^ swizzle] = high;
    }
  }

 private:
  // Eight neighbours are in rows of their own, so that loads and stores meet every bank once.
  static constexpr int kChunks = 4;  ///< of 16 bytes
  static __device__ __forceinline__ int part() { return lane() / 8 % 2; }

  const Params& params_;
  int asked_ = -1;
  std::uint32_t scales_[2];  ///< of the row, in fp16
  float4 next_scales_;
};

/// Pages of an item's tiles, or slots of a row's keys, read two tiles before they are used.
template <bool Lists>
class PackedPlaces {
 public:
  __device__ __forceinline__ PackedPlaces(const Params& params, const attention::LatentItem& item,
                                          int row)
      : entries_(params.kv_indices + item.entry_begin + (Lists ? row : 0)),
        end_(Lists ? item.kv_len - row : item.tile_end),
        now_(Lists ? at(item.tile_begin) : item.first_page),
        next_(at(item.tile_begin + 1)) {}

  [[nodiscard]] __device__ __forceinline__ int now() const { return now_; }
  [[nodiscard]] __device__ __forceinline__ int next() const { return next_; }  ///< -1 = none
  [[nodiscard]] __device__ __forceinline__ int at(int tile) const {
    const int entry = Lists ? tile * kKeys : tile;
    return entry < end_ ? entries_[entry] : -1;
  }
  __device__ __forceinline__ void advance(int after) {
    now_ = next_;
    next_ = after;
  }

 private:
  const std::int32_t* entries_;
  int end_;
  int now_;
  int next_;
};

/// Calls each(item, tiles, tile, places, after) for the tiles of this thread block, in order. `row`:
/// the thread's, where requests are lists.
template <bool Lists, class Each>
__device__ __forceinline__ void for_each_tile(const Params& params, int row, Each each) {
  const Share share = share_of(params);
  std::uint32_t tiles = 0;
  const auto take = [&](const attention::LatentItem& item) {
    PackedPlaces<Lists> places(params, item, row);
    for (int tile = item.tile_begin; tile < item.tile_end; ++tile, ++tiles) {
      const int after = places.at(tile + 2);
      each(item, tiles, tile, places, after);
      places.advance(after);
    }
  };
  for (int i = share.begin; i < share.end; ++i) {
    const attention::LatentItem& planned = params.items[i];
    if (planned.first_block + share.lane >= planned.num_blocks ||
        planned.tile_begin >= planned.tile_end)
      continue;
    if constexpr (Lists) {
      attention::LatentItem item = planned;
      fit_to_list(params, kKeys, item);
      take(item);
    } else {
      take(planned);
    }
  }
}

/// One thread asks for everything.
template <class Element>
__device__ void ask_packed(Shared<Element>& shared, const Params& params, const CUtensorMap& q_map,
                           const CUtensorMap& k_map) {
  ptx::dependency_wait();
  const int lane_of_group = share_of(params).lane;
  Errands<Element, true> errands(shared, params, q_map);
  const auto hint = params.lanes == 1 ? ptx::CacheHint::evict_first : ptx::CacheHint::evict_normal;
  for_each_tile<false>(
      params, 0,
      [&](const attention::LatentItem& item, std::uint32_t tiles, int tile,
          const PackedPlaces<false>& pages, int after) {
        const int stage = static_cast<int>(tiles % kStages);
        const std::uint32_t parity = tiles / kStages % 2 ^ 1;
        const int block = item.first_block + lane_of_group;
        const bool first = tile == item.tile_begin;
        if (tiles == 0) errands.ask_first_rope(item, block);
        if (first) errands.ask_queries(item, block);
        const auto ask = [&](int piece, ptx::Mbarrier& full, int panel, int column) {
          ptx::mbarrier_wait(shared.k_empty[stage][piece], parity);
          ptx::mbarrier_arrive_expect(full, kPanel * sizeof(Element));
          ptx::tma_load(shared.k[stage][panel], k_map, full, hint, column, 0, pages.now());
        };
        ask(kRopePiece, shared.k_full[stage][kRopePiece], kRopePanel,
            packed::kRopeAt / static_cast<int>(sizeof(Element)));
#pragma unroll
        for (int order = 0; order < 4; ++order) {
          const int piece = 2 * (stage ^ order / 2) + order % 2;
          ask(1 + piece, shared.k_raw[stage][piece], 2 * piece + 1, 64 * piece);
        }
        if (after >= 0)
          ptx::bulk_prefetch(
              static_cast<const std::uint8_t*>(params.k) + after * params.k_page_stride,
              (kKeys - 1) * params.k_token_stride + packed::kTokenBytes);
        if (first && tiles > 0) errands.ask_rope(item, block);
        if (tile + 1 == item.tile_end) errands.draw(item, lane_of_group);
      });
}

/// Four warps gather what lists name, to where ask_packed() would have had it put.
template <class Element>
__device__ void gather_packed(Shared<Element>& shared, const Params& params,
                              const CUtensorMap& q_map) {
  constexpr int kUnit = static_cast<int>(sizeof(Element));
  ptx::dependency_wait();
  const Share share = share_of(params);
  Errands<Element, true> errands(shared, params, q_map);
  ListedTokens<Element> keys(params);
  const bool asks = threadIdx.x == kConsumers + 128;
  std::uint32_t tiles = 0;
  for (int i = share.begin; i < share.end; ++i) {
    attention::LatentItem item = params.items[i];
    fit_to_list(params, kKeys, item);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks) continue;
    keys.begin(item);
    for (int tile = item.tile_begin; tile < item.tile_end; ++tile, ++tiles) {
      const int stage = static_cast<int>(tiles % kStages);
      const std::uint32_t parity = tiles / kStages % 2 ^ 1;
      const bool first = asks && tile == item.tile_begin;
      keys.look_ahead(item, tile);
      if (asks && tiles == 0) errands.ask_first_rope(item, block);
      if (first) errands.ask_queries(item, block);
      ptx::mbarrier_wait(shared.k_empty[stage][kRopePiece], parity);
      keys.template copy<1>(shared.k[stage] + kRopePanel, packed::kRopeAt / kUnit,
                            shared.k_full[stage][kRopePiece]);
#pragma unroll
      for (int order = 0; order < 4; ++order) {
        const int piece = 2 * (stage ^ order / 2) + order % 2;
        ptx::mbarrier_wait(shared.k_empty[stage][1 + piece], parity);
        keys.template copy<1>(shared.k[stage] + 2 * piece + 1, piece * 64,
                              shared.k_raw[stage][piece]);
      }
      keys.advance();
      if (first && tiles > 0) errands.ask_rope(item, block);
      if (asks && tile + 1 == item.tile_end) errands.draw(item, share.lane);
    }
  }
}

/// Four warps widen what arrives.
template <class Keys, class Element>
__device__ void widen_packed(Shared<Element>& shared, const Params& params) {
  ptx::dependency_wait();
  Keys keys(params);
  for_each_tile<Keys::kLists>(params, Keys::row(),
                              [&](const attention::LatentItem& item, std::uint32_t tiles, int tile,
                                  const PackedPlaces<Keys::kLists>& places, int) {
                                const int stage = static_cast<int>(tiles % kStages);
                                const std::uint32_t parity = tiles / kStages % 2;
                                const int valid = item.kv_len - tile * kKeys;
                                keys.begin(places.now());
                                if (places.next() >= 0) keys.ask_scales(places.next());
#pragma unroll
                                for (int order = 0; order < 4; ++order) {
                                  const int block = 2 * (stage ^ order / 2) + order % 2;
                                  ptx::mbarrier_wait(shared.k_raw[stage][block], parity);
                                  keys.widen(shared.k[stage] + 2 * block, block, valid);
                                  ptx::mbarrier_arrive_warp(shared.k_full[stage][1 + block]);
                                }
                              });
}

template <class Element>
using PackedKeys = WidenedKeys<Element, false>;
template <class Element>
using ListedPackedKeys = WidenedKeys<Element, true>;

}  // namespace attune::kernels::mla_decode::sm90
