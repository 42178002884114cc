// fp8 keys and values on their way into a ring of fp16 tiles: half the bytes of memory, the same
// products. Every e4m3 number is an fp16 number, so nothing is rounded.
#pragma once

#include <cuda_fp8.h>

#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ragged_prefill/sm90/loader.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

/// The tiles of all items, one after another.
template <class C>
class TileStream {
 public:
  __device__ explicit TileStream(SharedOf<C>& shared) : shared_(shared) {}

  /// Whether next() would not wait. All lanes, one answer.
  __device__ bool ready() const {
    return open_ ||
           __all_sync(0xffffffffu, ptx::mbarrier_test(shared_.item_full[at_.stage], at_.parity));
  }
  /// On to the next tile; false behind the last item.
  __device__ bool next() {
    if (open_ && --tile_ >= item_.tile_begin) return true;
    if (open_) at_.advance();
    ptx::mbarrier_wait(shared_.item_full[at_.stage], at_.parity);
    item_ = shared_.item[at_.stage];
    open_ = item_.tile_end != 0;
    tile_ = item_.tile_end - 1;
    return open_;
  }
  __device__ const WorkItem& item() const { return item_; }
  __device__ int tile() const { return tile_; }

 private:
  SharedOf<C>& shared_;
  Ring<kItemStages> at_;
  WorkItem item_;
  int tile_ = 0;
  bool open_ = false;
};

/// One operand; one warp, which asks for stored tiles a few ahead and widens the oldest. Boxes of
/// the copy engine where it can, 16-byte copies for other pages, by the launch's parameters: the
/// branch costs less than kernels of their own are worth.
template <class C, int HeadDim, int Stages>
class WideningLoader {
 public:
  using Tile = __half[C::kKeyTile * HeadDim];
  using Stored = std::uint8_t[C::kKeyTile * HeadDim];

  __device__ WideningLoader(Tile (&tiles)[Stages], ptx::Mbarrier (&full)[Stages],
                            ptx::Mbarrier (&empty)[Stages], Stored (&stored)[kStoredStages],
                            ptx::Mbarrier (&stored_full)[kStoredStages], const CUtensorMap& map,
                            const Cache& cache, const Params& params)
      : tiles_(tiles),
        full_(full),
        empty_(empty),
        stored_(stored),
        stored_full_(stored_full),
        map_(map),
        cache_(cache),
        params_(params) {}

  __device__ void load_all(SharedOf<C>& shared) {
    TileStream<C> stream(shared);
    bool more = true;
    for (int asked = 0;;) {
      // Only a warp with nothing to widen waits for an item.
      while (more && asked < kStoredStages && (asked == 0 || stream.ready())) {
        more = stream.next();
        if (!more) break;
        ask(stream.item(), stream.tile());
        ++asked;
      }
      if (asked == 0) return;
      widen();
      --asked;
    }
  }

 private:
  static constexpr int kRowChunks = HeadDim / 16;  ///< 16-byte chunks of a stored row

  __device__ void ask(const WorkItem& item, int tile) {
    const int first_key = tile * C::kKeyTile;
    const int valid = max(0, min(C::kKeyTile, item.kv_len - first_key));
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
  }

  __device__ void ask_rows(int row, int head, bool any) {
    if (threadIdx.x % 32 != 0) return;
    ptx::Mbarrier& full = stored_full_[asking_.stage];
    ptx::mbarrier_arrive_expect(full, any ? sizeof(Stored) : 0);
    if (any)
      ptx::tma_load(stored_[asking_.stage], map_, full, ptx::CacheHint::evict_normal, 0, row, head,
                    0);
  }

  /// A lane a box.
  __device__ void ask_boxes(int first_entry, int first_key, int head, int valid) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = lane * params_.box_rows;
    const bool mine = row < valid;
    const int entry = (first_key + row) / params_.page_size;
    const int page = mine ? params_.kv_indices[first_entry + entry] : 0;
    const int boxes = __popc(__ballot_sync(0xffffffffu, mine));
    ptx::Mbarrier& full = stored_full_[asking_.stage];
    if (lane == 0)
      ptx::mbarrier_arrive_expect(full,
                                  static_cast<std::uint32_t>(boxes * params_.box_rows * HeadDim));
    __syncwarp();
    if (mine)
      ptx::tma_load(stored_[asking_.stage] + row * HeadDim, map_, full,
                    ptx::CacheHint::evict_normal, 0, first_key + row - entry * params_.page_size,
                    head, page);
  }

  /// A lane knows where one row of 32 lies and tells those that copy it.
  __device__ void gather(int first_entry, int first_key, int head, int valid) {
    constexpr int kRows = 32 / kRowChunks;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const auto* base = static_cast<const std::uint8_t*>(cache_.data) + head * cache_.head_stride +
                       16 * (lane % kRowChunks);
#pragma unroll 1
    for (int first = 0; first < valid; first += 32) {
      const int key = min(first_key + first + lane, first_key + valid - 1);
      const int entry = params_.page_size == 1 ? key : key / params_.page_size;
      const std::int64_t offset = params_.kv_indices[first_entry + entry] * cache_.page_stride +
                                  (key - entry * params_.page_size) * cache_.token_stride;
#pragma unroll 4
      for (int i = 0; i < 32; i += kRows) {
        const std::uint8_t* from = base + __shfl_sync(0xffffffffu, offset, i + lane / kRowChunks);
        const int row = first + i + lane / kRowChunks;
        if (row < valid)
          ptx::cp_async_16(stored_[asking_.stage] + row * HeadDim + 16 * (lane % kRowChunks), from);
      }
    }
    ptx::cp_async_mbarrier_arrive(stored_full_[asking_.stage]);
  }

  /// A stored chunk of 16 numbers becomes two chunks of a swizzled panel. Of eight lanes that write
  /// together, those of the second panel begin with their second chunk, so that none meet in a
  /// bank.
  __device__ void widen() {
    using Kv = __nv_fp8_e4m3;
    ptx::mbarrier_wait(stored_full_[widening_.stage], widening_.parity);
    ptx::mbarrier_wait(empty_[ring_.stage], ring_.parity);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const auto* from = reinterpret_cast<const uint4*>(stored_[widening_.stage]);
    const int chunk = lane % kRowChunks;
    const int second = chunk / 4 % 2;
    __half* to = tiles_[ring_.stage] + chunk / 4 * (C::kKeyTile * 64);
#pragma unroll 4
    for (int i = 0; i < C::kKeyTile * kRowChunks / 32; ++i) {
      const int row = i * (32 / kRowChunks) + lane / kRowChunks;
      const uint4 x = from[32 * i + lane];
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const int half = s ^ second;
        const std::uint32_t low = half == 0 ? x.x : x.z;
        const std::uint32_t high = half == 0 ? x.y : x.w;
        *reinterpret_cast<uint4*>(to + row * 64 + 8 * ((2 * (chunk % 4) + half) ^ (row % 8))) =
            make_uint4(ptx::widen_fp8<Kv>(low), ptx::widen_fp8<Kv>(low >> 16),
                       ptx::widen_fp8<Kv>(high), ptx::widen_fp8<Kv>(high >> 16));
      }
    }
    clear_tail();
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(full_[ring_.stage]);
    widening_.advance();
    ring_.advance();
  }

  /// Zeros behind the last key: bytes there may be NaN, and 0 * NaN is not 0.
  __device__ void clear_tail() {
    constexpr int kPanels = HeadDim / 64;
    const int valid = static_cast<int>(valid_ & 0xffff);
    valid_ >>= 16;
    if (valid == C::kKeyTile) return;
    __syncwarp();
#pragma unroll 1
    for (int i = 8 * valid + static_cast<int>(threadIdx.x % 32); i < 8 * C::kKeyTile; i += 32)
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel)
        reinterpret_cast<uint4*>(tiles_[ring_.stage])[panel * C::kKeyTile * 8 + i] =
            make_uint4(0, 0, 0, 0);
  }

  Tile (&tiles_)[Stages];
  ptx::Mbarrier (&full_)[Stages];
  ptx::Mbarrier (&empty_)[Stages];
  Stored (&stored_)[kStoredStages];
  ptx::Mbarrier (&stored_full_)[kStoredStages];
  const CUtensorMap& map_;
  const Cache cache_;
  const Params& params_;
  std::uint32_t valid_ = 0;  ///< keys of the stored tiles under way, 16 bits each, oldest first
  static_assert(kStoredStages == 2);
  Ring<kStoredStages> asking_;
  Ring<kStoredStages> widening_;
  Ring<Stages> ring_{0, 1};
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
