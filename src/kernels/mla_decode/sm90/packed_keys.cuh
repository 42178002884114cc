// Keys from the fp8 latent cache, 656 bytes a token: the copy engine brings the rope panel, and
// eight warps, two on each scheduler so that one converts while the other waits, widen the latents
// from registers to where the copy engine would have put them. A piece, two panels, is a block of
// 128 latents under one scale.
//
// They become fp16 (scales too: those that are no powers of two are rounded, to three bits more than
// FlashMLA's), which holds e4m3 times a power of two exactly and takes a conversion and a
// product a pair; bf16 would take six instructions. So the latent columns of queries become fp16
// too (convert_queries), and products of rope columns stay in bf16.
//
// Two pieces wait in registers for their room, so that a stage's refill is a matter of conversions
// and not of the memory's latency.
#pragma once

#include "attention/packed_latent.hpp"
#include "kernels/mla_decode/sm90/collective.cuh"
#include "kernels/ptx/widen.cuh"

namespace attune::kernels::mla_decode::sm90 {

namespace packed = attention::packed_latent;

template <class Element>
class PackedKeys {
 public:
  using Roles = sm90::Roles<256, 208, 48>;
  using Latent = __half;
  static constexpr bool kMapped = true;
  static constexpr bool kClearsBehind = true;
  // A writer's fence would wait for its loads under way.
  static constexpr bool kFences = false;
  static constexpr int kThreads = Roles::kProducers;
  static __device__ constexpr int arrivals(int piece) {
    return piece == kRopePiece ? 1 : kThreads / 32;
  }

  __device__ PackedKeys(const Params& params, const CUtensorMap& map)
      : params_(params),
        map_(map),
        hint_(params.lanes == 1 ? ptx::CacheHint::evict_first : ptx::CacheHint::evict_normal) {}

  /// Takes what was asked for at the end of the item before, or asks.
  __device__ __forceinline__ void begin(const attention::LatentItem& item, int stage) {
    valid_ = item.kv_len - item.tile_begin * kKeys;
    own_half_ = stage;
    if (page_ == item.first_page) return;
    page_ = item.first_page;
    fetch_scales(page_);
    take_scales();
    fetch(0, page_, 2 * stage);
    fetch(1, page_, 2 * stage + 1);
  }

  __device__ __forceinline__ void look_ahead(const attention::LatentItem& item, int tile,
                                             const attention::LatentItem* next) {
    next_page_ = -1;
    if (tile + 1 < item.tile_end)
      next_page_ = params_.kv_indices[item.entry_begin + tile + 1];
    else if (next != nullptr && next->tile_begin < next->tile_end)
      next_page_ = next->first_page;
  }

  template <int Panels>
  __device__ __forceinline__ void load(Element (*panels)[kPanel], int first, int order,
                                       ptx::Mbarrier& full) {
    if constexpr (Panels == 1) {
      if (threadIdx.x == kConsumers) {
        ptx::mbarrier_arrive_expect(full, kPanel * sizeof(Element));
        ptx::tma_load(panels[kRopePanel], map_, full, hint_, 0, 0, page_);
      }
      __syncwarp();
      return;
    }
    widen(order % 2, first / 2, panels[first + chunk() / 4]);
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(full);
    // The piece after next: this tile's other half, then the next tile's own half, which are the
    // same columns.
    const int page = order < 2 ? page_ : next_page_;
    if (page >= 0) fetch(order % 2, page, 2 * (own_half_ ^ 1) + order % 2);
    if (order > 0 || next_page_ < 0) return;
    fetch_scales(next_page_);
    if (threadIdx.x == kConsumers)
      ptx::bulk_prefetch(row_at(next_page_, 0),
                         (kKeys - 1) * params_.k_token_stride + packed::kTokenBytes);
    __syncwarp();
  }

  __device__ __forceinline__ void advance() {
    page_ = next_page_;
    take_scales();
    valid_ -= kKeys;
    own_half_ ^= 1;
  }

 private:
  // A warp has rows 4 (warp) + {0 … 3} + 32 i, each thread a 16-byte chunk of one of the four.
  // Eight neighbouring threads hold half of two rows, so that their stores meet all banks.
  static constexpr int kRowsAtOnce = kThreads / 8;
  static constexpr int kOfThread = kKeys / kRowsAtOnce;
  static __device__ __forceinline__ int warp() {
    return static_cast<int>(threadIdx.x - kConsumers) / 32;
  }
  static __device__ __forceinline__ int chunk() { return lane() / 8 % 2 * 4 + lane() % 4; }
  static __device__ __forceinline__ int row_of_warp() { return lane() / 16 * 2 + lane() % 8 / 4; }
  static __device__ __forceinline__ int first_row() { return 4 * warp() + row_of_warp(); }

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

  /// Of the warp's eight rows four scales each: lane l holds one of row l / 4.
  __device__ __forceinline__ void fetch_scales(int page) {
    const int row = lane() / 4;
    const std::uint8_t* const from =
        row_at(page, 4 * warp() + row % 4 + row / 4 * kRowsAtOnce) + packed::kScalesAt;
    next_scale_ = __ldcg(reinterpret_cast<const float*>(from) + lane() % 4);
  }
  __device__ __forceinline__ void take_scales() {
    scale_ = ptx::pack_pair<__half>(next_scale_, next_scale_);
  }

  __device__ __forceinline__ void widen(int slot, int block, Element* panel) {
    static_assert(kOfThread * 4 == 8, "a scale a lane");
    const int row = first_row();
    const int at = 2 * (chunk() % 4) ^ row % 8;
    Element* const to = panel + row * 64;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      std::uint32_t scale = __shfl_sync(kAllLanes, scale_, 4 * (4 * i + row_of_warp()) + block);
      uint4 bytes = pieces_[slot][i];
      if (row + kRowsAtOnce * i >= valid_) {
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
  const CUtensorMap& map_;
  ptx::CacheHint hint_;
  int page_ = -1;
  int next_page_ = -1;
  int valid_ = 0;     ///< keys of the tile and behind it
  int own_half_ = 0;  ///< which half of the tile's columns comes first
  uint4 pieces_[2][kOfThread];
  std::uint32_t scale_;  ///< a pair of fp16
  float next_scale_;
};

}  // namespace attune::kernels::mla_decode::sm90
