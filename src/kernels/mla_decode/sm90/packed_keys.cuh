// Keys from the fp8 latent cache, 656 bytes a token: the copy engine brings the rope panel, and the
// producer's four warps widen the latents from registers to where the copy engine would have put
// them. A piece, two panels, is a block of 128 latents under one scale.
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
  using Registers = ManyProducerRegisters;
  static constexpr bool kMapped = true;
  static constexpr bool kClearsBehind = true;
  static constexpr bool kFences = true;
  static constexpr int kThreads = 128;
  static __device__ constexpr int arrivals(int piece) { return piece == kRopePiece ? 1 : kThreads / 32; }

  __device__ PackedKeys(const Params& params, const CUtensorMap& map)
      : params_(params),
        map_(map),
        hint_(params.lanes == 1 ? ptx::CacheHint::evict_first : ptx::CacheHint::evict_normal) {}

  /// Waits for what was asked for at the end of the item before, or asks.
  __device__ __forceinline__ void begin(const attention::LatentItem& item, int stage) {
    valid_ = item.kv_len - item.tile_begin * kKeys;
    own_half_ = stage;
    if (page_ == item.first_page) return;
    page_ = item.first_page;
    fetch_scales(page_);
    advance_scales();
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
      if (threadIdx.x % kThreads == 0) {
        ptx::mbarrier_arrive_expect(full, kPanel * sizeof(Element));
        ptx::tma_load(panels[kRopePanel], map_, full, hint_, 0, 0, page_);
      }
      __syncwarp();
    } else {
      const int block = first / 2;
      widen(order % 2, block, panels[first + chunk() / 4]);
      ptx::fence_proxy_async();
      __syncwarp();
      if (lane() == 0) ptx::mbarrier_arrive(full);
      // The piece after next: this tile's other half, then the next tile's own half, which are the
      // same columns.
      const int page = order < 2 ? page_ : next_page_;
      if (order == 0 && next_page_ >= 0) fetch_scales(next_page_);
      if (page >= 0) fetch(order % 2, page, 2 * (own_half_ ^ 1) + order % 2);
    }
  }

  __device__ __forceinline__ void advance() {
    page_ = next_page_;
    valid_ -= kKeys;
    own_half_ ^= 1;
    advance_scales();
  }

 private:
  // A warp has rows 4 (warp) + {0 … 3} + 16 i, each thread a 16-byte chunk of one of the four.
  // Eight neighbouring threads hold half of two rows, so that their stores meet all banks.
  static constexpr int kOfThread = kKeys / 16;
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
          __ldcg(reinterpret_cast<const uint4*>(from + 16 * i * params_.k_token_stride));
  }

  /// Of the warp's 16 rows four scales each: lane l holds two of row l / 2.
  __device__ __forceinline__ void fetch_scales(int page) {
    const int row = lane() / 2;
    next_scales_ =
        __ldcg(reinterpret_cast<const float2*>(
                   row_at(page, 4 * warp_of_group() + row % 4 + row / 4 * 16) + packed::kScalesAt) +
               lane() % 2);
  }
  __device__ __forceinline__ void advance_scales() { scales_ = next_scales_; }

  __device__ __forceinline__ void widen(int slot, int block, Element* panel) {
    const int row = first_row();
    const int at = 2 * (chunk() % 4) ^ row % 8;
    Element* const to = panel + row * 64;
    const float mine = block % 2 == 0 ? scales_.x : scales_.y;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      float scale = __shfl_sync(kAllLanes, mine, 2 * (4 * i + row_of_warp()) + block / 2);
      uint4 bytes = pieces_[slot][i];
      if (row + 16 * i >= valid_) {
        bytes = make_uint4(0, 0, 0, 0);
        scale = 0.0f;
      }
      uint4 low;
      uint4 high;
      ptx::widen_e4m3<Element>(bytes.x, scale, low.x, low.y);
      ptx::widen_e4m3<Element>(bytes.y, scale, low.z, low.w);
      ptx::widen_e4m3<Element>(bytes.z, scale, high.x, high.y);
      ptx::widen_e4m3<Element>(bytes.w, scale, high.z, high.w);
      *reinterpret_cast<uint4*>(to + 16 * i * 64 + at * 8) = low;
      *reinterpret_cast<uint4*>(to + 16 * i * 64 + (at ^ 1) * 8) = high;
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
  float2 scales_;
  float2 next_scales_;
};

}  // namespace attune::kernels::mla_decode::sm90
