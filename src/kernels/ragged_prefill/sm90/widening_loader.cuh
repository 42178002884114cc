// fp8 keys and values on their way into a ring of fp16 tiles: half the bytes of memory, the same
// products. Every e4m3 number is an fp16 number, so nothing is rounded.
#pragma once

#include <cuda_fp8.h>

#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ragged_prefill/sm90/loader.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

/// The tiles of all items, one after another. `Duty` is what a warp does while it waits.
template <class C, class Duty>
class TileStream {
 public:
  __device__ TileStream(SharedOf<C>& shared, Duty& duty) : shared_(shared), duty_(duty) {}

  /// Whether next() would not wait. All lanes, one answer.
  __device__ bool ready() const {
    if (open_ && tile_ > tile_begin_) return true;
    const ptx::Ring<kItemStages> at = open_ ? at_.next() : at_;
    return __all_sync(0xffffffffu, ptx::mbarrier_test(shared_.item_full[at.stage], at.parity));
  }
  /// On to the next tile; false behind the last item.
  __device__ bool next() {
    if (open_ && --tile_ >= tile_begin_) return true;
    if (open_) at_.advance();
    duty_.wait(shared_.item_full[at_.stage], at_.parity);
    const PrefillTile& item = shared_.item[at_.stage];
    open_ = item.tile_end != 0;
    tile_ = item.tile_end - 1;
    tile_begin_ = item.tile_begin;
    return open_;
  }
  /// Of the tile; its place is not given to another before the tile has been used.
  __device__ const PrefillTile& item() const { return shared_.item[at_.stage]; }
  __device__ int tile() const { return tile_; }

 private:
  SharedOf<C>& shared_;
  Duty& duty_;
  ptx::Ring<kItemStages> at_;
  int tile_ = 0;
  int tile_begin_ = 0;
  bool open_ = false;
};

/// Nothing to do but wait.
struct NoDuty {
  __device__ void step() {}
  __device__ void wait(ptx::Mbarrier& barrier, std::uint32_t parity) {
    ptx::mbarrier_wait(barrier, parity);
  }
};

/// One warp's share of the rows of an operand's tiles. Stored rows come into a ring of the warp's
/// own, by boxes of the copy engine where it can, by 16-byte copies from other pages: as the
/// launch's parameters say, for the branch costs less than kernels of their own are worth. As soon
/// as a tile is in registers its place is asked for again.
template <class C, int HeadDim, int Stages, class Duty>
class WideningLoader {
 public:
  using Tile = __half[C::kKeyTile * HeadDim];
  using Stored = StoredRows<C, HeadDim>;

  __device__ WideningLoader(Tile (&tiles)[Stages], ptx::Mbarrier (&full)[Stages],
                            ptx::Mbarrier (&empty)[Stages], Stored (&stored)[kWideningWarps],
                            const CUtensorMap& map, const Cache& cache, const Params& params,
                            int share, Duty& duty)
      : tiles_(tiles),
        full_(full),
        empty_(empty),
        stored_(stored[share]),
        map_(map),
        cache_(cache),
        params_(params),
        share_begin_(share * kRows),
        duty_(duty) {}

  /// `wants_items`: says when the next item is to be taken.
  __device__ void load_all(SharedOf<C>& shared, bool wants_items) {
    TileStream<C, Duty> stream(shared, duty_);
    int asked = 0;
    for (;;) {
      duty_.step();
      while (asked < kStoredStages && ask_next(shared, stream, asked == 0, wants_items)) ++asked;
      if (asked == 0) return;
      widen();
      --asked;
    }
  }

 private:
  static constexpr int kPanels = HeadDim / 64;
  static constexpr int kRows = C::kKeyTile / kWideningWarps;
  static constexpr int kRowChunks = HeadDim / 16;  ///< 16-byte chunks of a stored row
  static constexpr int kRowsALoad = 32 / kRowChunks;
  static constexpr int kLoads = kRows / kRowsALoad;
  static constexpr int kTogether = kLoads % 4 == 0 ? 4 : kLoads % 5 == 0 ? 5 : 3;
  static_assert(kRows % kRowsALoad == 0 && kRowsALoad % 2 == 0 && kLoads % kTogether == 0);

  /// Eight neighbouring lanes hold four chunks each of two rows, so chosen that they meet in no
  /// bank: neither of the stored rows, nor of the swizzled panels.
  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int row_of(int i) {
    return i * kRowsALoad + lane() / 4 % 2 + lane() / 8 / kPanels * 2;
  }
  static __device__ int panel() { return (lane() / 8 + lane() / 4 % 2) % kPanels; }
  static __device__ int chunk() { return lane() % 4; }

  /// Asks for one more tile, if there is one. Only a warp with nothing to widen waits for an item.
  __device__ bool ask_next(SharedOf<C>& shared, TileStream<C, Duty>& stream, bool may_wait,
                           bool wants_items) {
    if (ended_ || (!may_wait && !stream.ready())) return false;
    ended_ = !stream.next();
    if (ended_) return false;
    const PrefillTile& item = stream.item();
    if (wants_items && stream.tile() == tile_to_want_at(item)) want_item(shared);
    const int first_key = stream.tile() * C::kKeyTile + share_begin_;
    const int valid = max(0, min(kRows, item.kv_len - first_key));
    const int head = item.head / params_.group;
    if (params_.kv_indices == nullptr)
      ask_rows(item.kv_start + first_key, head, valid > 0);
    else if (params_.box_rows > 0)
      ask_boxes(item.kv_start, first_key, head, valid);
    else
      gather(item.kv_start, first_key, head, valid);
    __syncwarp();
    valid_ |= static_cast<std::uint32_t>(valid) << (asking_.stage == widening_.stage ? 0 : 16);
    asking_.advance();
    return true;
  }

  __device__ void ask_rows(int row, int head, bool any) {
    if (lane() != 0) return;
    ptx::Mbarrier& full = stored_.full[asking_.stage];
    ptx::mbarrier_arrive_expect(full, any ? sizeof(stored_.rows[0]) : 0);
    if (any)
      ptx::tma_load(stored_.rows[asking_.stage], map_, full, ptx::CacheHint::evict_normal, 0, row,
                    head, 0);
  }

  /// A lane a box.
  __device__ void ask_boxes(int first_entry, int first_key, int head, int valid) {
    const int row = lane() * params_.box_rows;
    const bool mine = row < valid;
    const PagePlace at = page_place(params_, first_key + row);
    const int page = mine ? params_.kv_indices[first_entry + at.entry] : 0;
    const int boxes = __popc(__ballot_sync(0xffffffffu, mine));
    ptx::Mbarrier& full = stored_.full[asking_.stage];
    if (lane() == 0)
      ptx::mbarrier_arrive_expect(full,
                                  static_cast<std::uint32_t>(boxes * params_.box_rows * HeadDim));
    __syncwarp();
    if (mine)
      ptx::tma_load(stored_.rows[asking_.stage] + row * HeadDim, map_, full,
                    ptx::CacheHint::evict_normal, 0, at.slot, head, page);
  }

  /// A lane knows where one row of 32 lies and tells those that copy it.
  __device__ void gather(int first_entry, int first_key, int head, int valid) {
    const auto* base = static_cast<const std::uint8_t*>(cache_.data) + head * cache_.head_stride +
                       16 * (lane() % kRowChunks);
#pragma unroll 1
    for (int first = 0; first < valid; first += 32) {
      const int key = min(first_key + first + lane(), first_key + valid - 1);
      const PagePlace at = page_place(params_, key);
      const std::int64_t offset = params_.kv_indices[first_entry + at.entry] * cache_.page_stride +
                                  at.slot * cache_.token_stride;
#pragma unroll 4
      for (int i = 0; i < 32; i += kRowsALoad) {
        const std::uint8_t* from = base + __shfl_sync(0xffffffffu, offset, i + lane() / kRowChunks);
        const int row = first + i + lane() / kRowChunks;
        if (row < valid)
          ptx::cp_async_16(stored_.rows[asking_.stage] + row * HeadDim + 16 * (lane() % kRowChunks),
                           from);
      }
    }
    ptx::cp_async_mbarrier_arrive(stored_.full[asking_.stage]);
  }

  /// The oldest stored tile. Rows behind the last key become zeros: bytes there may be NaN, and
  /// 0 * NaN is not 0.
  __device__ void widen() {
    using Kv = __nv_fp8_e4m3;
    ptx::mbarrier_wait(stored_.full[widening_.stage], widening_.parity);
    duty_.wait(empty_[ring_.stage], ring_.parity);
    const int valid = static_cast<int>(valid_ & 0xffff);
    valid_ >>= 16;
    const auto* from = reinterpret_cast<const uint4*>(stored_.rows[widening_.stage]);
    __half* to = tiles_[ring_.stage] + panel() * (C::kKeyTile * 64) + share_begin_ * 64;
#pragma unroll
    for (int first = 0; first < kLoads; first += kTogether) {
      uint4 rows[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        rows[i] = from[row_of(first + i) * kRowChunks + 4 * panel() + chunk()];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int row = row_of(first + i);
        const uint4 x = row < valid ? rows[i] : make_uint4(0, 0, 0, 0);
        const int place = 2 * chunk() ^ (share_begin_ + row) % 8;
        *reinterpret_cast<uint4*>(to + row * 64 + 8 * place) =
            make_uint4(ptx::widen_fp8<Kv>(x.x), ptx::widen_fp8<Kv, true>(x.x),
                       ptx::widen_fp8<Kv>(x.y), ptx::widen_fp8<Kv, true>(x.y));
        *reinterpret_cast<uint4*>(to + row * 64 + 8 * (place ^ 1)) =
            make_uint4(ptx::widen_fp8<Kv>(x.z), ptx::widen_fp8<Kv, true>(x.z),
                       ptx::widen_fp8<Kv>(x.w), ptx::widen_fp8<Kv, true>(x.w));
      }
    }
    widening_.advance();
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive_warp(full_[ring_.stage]);
    ring_.advance();
  }

  Tile (&tiles_)[Stages];
  ptx::Mbarrier (&full_)[Stages];
  ptx::Mbarrier (&empty_)[Stages];
  Stored& stored_;
  const CUtensorMap& map_;
  const Cache cache_;
  const Params& params_;
  const int share_begin_;  ///< first row of a tile that is this warp's
  Duty& duty_;
  bool ended_ = false;
  std::uint32_t valid_ = 0;  ///< keys of the stored tiles under way, 16 bits each, oldest first
  static_assert(kStoredStages == 2);
  ptx::Ring<kStoredStages> asking_;
  ptx::Ring<kStoredStages> widening_;
  ptx::Ring<Stages> ring_{0, 1};
};

/// A warpgroup's 64 rows of queries from bf16 to fp16, in place. Beyond fp16's range a query
/// saturates; below 2^-14 it loses digits that the largest query of its row has not got either.
template <class C>
__device__ void narrow_queries(typename C::Element* q, int warpgroup) {
  constexpr int kPanels = C::kHeadDimQk / 64;
  const auto convert = [](std::uint32_t pair) {
    const float low = fminf(fmaxf(__uint_as_float(pair << 16), -65504.0f), 65504.0f);
    const float high = fminf(fmaxf(__uint_as_float(pair & 0xffff0000u), -65504.0f), 65504.0f);
    return ptx::pack_pair<__half>(low, high);
  };
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    auto* rows = reinterpret_cast<uint4*>(q + panel * C::kQueryTile * 64 + warpgroup * 64 * 64);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint4& x = rows[128 * i + threadIdx.x % 128];
      x = make_uint4(convert(x.x), convert(x.y), convert(x.z), convert(x.w));
    }
  }
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup, 128);
}

}  // namespace attune::kernels::ragged_prefill::sm90
