// A warp's private ring of KV tiles: the warp that computes also loads, so no barrier of the CTA is
// met in the main loop (docs/kernels/paged_decode-cuda.md).
#pragma once

#include "kernels/paged_decode/sm80/params.hpp"
#include "kernels/paged_decode/sm80/policy.hpp"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::paged_decode::sm80 {

using base::divide;

/// What a warp does of an item: which of the CTA's heads, which of the head's tiles, and which part of
/// their head dim.
struct WarpRole {
  int part;
  int head;   ///< 0 … heads_per_cta - 1
  int slice;  ///< takes tiles slice, slice + num_slices, … of the chunk
  int num_slices;
};

/// An item of work (attention/work_list.hpp).
struct Item {
  attention::DecodeChunk chunk;
  int unit;
};

__device__ __forceinline__ Item read_item(const Params& p, int id) {
  Item item;
  const auto chunk = static_cast<int>(divide(static_cast<std::uint32_t>(id), p.units));
  item.unit = id - chunk * static_cast<int>(p.units.divisor);
  const auto* from = reinterpret_cast<const int4*>(p.chunks + chunk);
  auto* to = reinterpret_cast<int4*>(&item.chunk);
#pragma unroll
  for (int i = 0; i < 3; ++i) to[i] = __ldg(from + i);
  return item;
}

/// Where one row group's queries and results lie.
struct RowTarget {
  std::int64_t token = 0;
  int first_head = 0;  ///< query head of row 0
  int rows = 0;
  int kv_head = 0;
};

template <class Policy>
__device__ __forceinline__ RowTarget row_target(const Params& p, const Item& item,
                                                int head_of_cta) {
  const int head = item.unit * p.heads_per_cta + head_of_cta;
  RowTarget t;
  t.token = item.chunk.request.q_row;
  t.kv_head = static_cast<int>(divide(static_cast<std::uint32_t>(head), p.row_blocks));
  const int first = (head - t.kv_head * static_cast<int>(p.row_blocks.divisor)) * Policy::kRows;
  t.first_head = t.kv_head * p.gqa_group_size + first;
  t.rows = min(Policy::kRows, p.gqa_group_size - first);
  return t;
}

/// The item as a warp works on it, in the place of what the plan knew of it.
template <class Policy>
__device__ __forceinline__ Item take_item(const Params& p, const WarpRole& role, Item item) {
  if constexpr (Policy::kListed) {
    attention::DecodeRequest& request = item.chunk.request;
    const RowTarget target = row_target<Policy>(p, item, role.head);
    const int list = request.q_row * p.num_kv_heads + target.kv_head;
    request.entry_begin = list * p.list_entries;
    request.kv_end = __ldg(p.lengths + list);
  }
  return item;
}

/// Items this CTA has been given: the first two by its number, later ones (or, beside another
/// kernel, all) by its thread 0, which writes the id of item n + 2 while item n is being finished.
template <class Policy>
struct ItemQueue {
  int num_items;
  const int* claimed;  ///< [2], shared

  /// The id of the CTA's n-th item; num_items or more where there is none.
  __device__ int id(int n) const {
    return n < 2 && !Policy::kBeside ? static_cast<int>(blockIdx.x + n * gridDim.x)
                                     : claimed[n % 2];
  }
};

/// The keys of one tile: tokens first + [begin, end) of the request are visible.
struct TileRange {
  int first;
  int begin;
  int end;
  __device__ bool partial(int tile) const { return begin > 0 || end < tile; }
};

template <class Policy>
__device__ __forceinline__ TileRange tile_range(const attention::DecodeRequest& r, int tile) {
  TileRange t;
  t.first = (r.kv_begin / Policy::kTile + tile) * Policy::kTile;
  t.begin = max(r.kv_begin - t.first, 0);
  t.end = min(r.kv_end - t.first, Policy::kTile);  // may be 0 or less: an empty row
  return t;
}

/// Fills the ring in the order the warp will consume it, across the border to the next item. The
/// page ids of the next tile are fetched one tile ahead, so that the address of a copy never waits
/// for memory. An item's first tile brings the queries along.
template <class Policy>
class RingLoader {
 public:
  __device__ RingLoader(const Params& p, const WarpRole& role, const ItemQueue<Policy>& queue,
                        const Item& first, std::uint8_t* ring, std::uint8_t* queries)
      : p_(p),
        role_(role),
        queue_(queue),
        ring_(ring),
        queries_(queries),
        lane_(static_cast<int>(threadIdx.x % 32)),
        one_page_(!Policy::kPadded && p.page.divisor % Policy::kTile == 0) {
    start(0, first);
    // The first lookups go out together.
    Place places[Policy::kStages - 1];
#pragma unroll
    for (Place& place : places) place = look_up();
    next_ = look_up();
    if (!Policy::kBeside && p_.listed_before) ptx::dependency_wait();
#pragma unroll
    for (int i = 0; i < Policy::kStages - 1; ++i) {
      if (places[i].live) copy(places[i]);
    }
  }

  /// The warp is about to work on item n; the loader may have gone there already.
  __device__ Item begin(int n) {
    if (number_ < n) start(n, take_item<Policy>(p_, role_, read_item(p_, queue_.id(n))));
    return item_;
  }

  /// The queries of item n - 1 have been read: item n may overwrite them.
  __device__ void allow(int n) { allowed_ = n; }

  /// Starts the copies of tiles until `limit` have been started, as far as items may be entered.
  __device__ void fill(int limit) {
    while (started_ < limit) {
      if (!next_.live) next_ = look_up();
      if (!next_.live) return;
      copy(next_);
      next_ = look_up();
    }
  }

  [[nodiscard]] __device__ int started() const { return started_; }

 private:
  /// Where the lane's token of a tile lies; where tiles lie in one page each, the tile's first.
  struct Place {
    bool live = false;
    bool first = false;  ///< of the warp's tiles of its item
    int begin = 0;       ///< visible rows of the tile
    int end = 0;
    int head = 0;
    int page = 0;
    int slot = 0;
  };

  __device__ void start(int n, const Item& item) {
    number_ = n;
    item_ = item;
    tile_ = item.chunk.tile_begin + role_.slice;
    entered_ = false;
  }

  /// The next tile of this warp, in the first item it may enter that has one.
  __device__ Place look_up() {
    Place place;
    while (tile_ >= item_.chunk.tile_end) {
      if (number_ >= allowed_) return place;
      const int id = queue_.id(number_ + 1);
      if (id >= queue_.num_items) return place;
      start(number_ + 1, take_item<Policy>(p_, role_, read_item(p_, id)));
    }
    place.first = !entered_;
    entered_ = true;
    const TileRange range = tile_range<Policy>(item_.chunk.request, tile_);
    tile_ += role_.num_slices;
    place.live = true;
    place.begin = range.begin;
    place.end = range.end;
    place.head = row_target<Policy>(p_, item_, role_.head).kv_head;
    const int row = one_page_ ? 0 : lane_ % Policy::kTile;
    if (one_page_ ? range.begin < range.end : row >= range.begin && row < range.end) {
      const auto token = static_cast<std::uint32_t>(range.first + row);
      const std::uint32_t entry = divide(token, p_.page);
      place.slot = static_cast<int>(token - entry * p_.page.divisor);
      const std::int64_t at = static_cast<std::int64_t>(item_.chunk.request.entry_begin) + entry;
      place.page = p_.kv.indices != nullptr ? __ldg(p_.kv.indices + at) : static_cast<int>(at);
    }
    return place;
  }

  __device__ void copy(const Place& place) {
    std::uint8_t* stage = ring_ + stage_ * Policy::kStageBytes;
    if (place.first) copy_queries();
    copy_rows(place, stage);
    ptx::cp_async_commit();
    stage_ = stage_ + 1 == Policy::kStages ? 0 : stage_ + 1;
    ++started_;
  }

  __device__ const char* query_row(const RowTarget& t, int row) const {
    return static_cast<const char*>(p_.q) +
           2 * (t.token * p_.q_token_stride + (t.first_head + row) * p_.q_head_stride);
  }

  /// The item is still the one the place belongs to: a place is copied before the next look_up.
  __device__ void copy_queries() {
    constexpr int kUnits = Policy::kPartQk * 2 / 16;
    constexpr int kPartBytes = Policy::kPartQk * 2;
    const RowTarget t = row_target<Policy>(p_, item_, role_.head);
    for (int unit = lane_; unit < t.rows * kUnits; unit += 32) {
      const int row = unit / kUnits;
      const int at = unit % kUnits * 16;
      const int from = role_.part * kPartBytes + at;
      const bool exists = !Policy::kPadded || from < p_.head_dim_qk * 2;
      ptx::cp_async_16(queries_ + row * Policy::kQueryStride + at, query_row(t, row) + from,
                       exists);
    }
  }

  /// Sixteen bytes a lane; invisible rows become zero.
  __device__ void copy_rows(const Place& place, std::uint8_t* stage) {
    const std::int64_t page = place.page;
    const bool whole = one_page_ && place.begin == 0 && place.end == Policy::kTile;
    const int slot = place.slot + (one_page_ && !whole ? lane_ % Policy::kTile : 0);
    const int key_part = role_.part * Policy::kKeyBytes;
    const int value_part = role_.part * Policy::kValueBytes;
    const char* key = static_cast<const char*>(p_.kv.k) + key_part +
                      Policy::kKvBytes * (page * p_.kv.k_page_stride + slot * p_.kv.k_token_stride +
                                          place.head * p_.kv.k_head_stride);
    const char* value =
        static_cast<const char*>(p_.kv.v) + value_part +
        Policy::kKvBytes * (page * p_.kv.v_page_stride + slot * p_.kv.v_token_stride +
                            place.head * p_.kv.v_head_stride);
    std::uint8_t* values = stage + Policy::kTile * Policy::kKeyStride;
    if (whole) {
      copy_whole<Policy::kKeyBytes / 16, Policy::kKeyStride>(
          stage, key, Policy::kKvBytes * p_.kv.k_token_stride);
      copy_whole<Policy::kValueBytes / 16, Policy::kValueStride>(
          values, value, Policy::kKvBytes * p_.kv.v_token_stride);
      return;
    }
    copy_side<Policy::kKeyBytes / 16, Policy::kKeyStride>(
        place, stage, key, p_.head_dim_qk * Policy::kKvBytes - key_part);
    copy_side<Policy::kValueBytes / 16, Policy::kValueStride>(
        place, values, value, p_.head_dim_vo * Policy::kKvBytes - value_part);
  }

  /// A tile that is visible as a whole, its rows `step` bytes apart: no lane asks another for an
  /// address.
  template <int Units, int Stride>
  __device__ void copy_whole(std::uint8_t* to, const char* first, std::int64_t step) {
    constexpr int kCopies = Policy::kTile * Units / 32;
    if constexpr (32 % Units == 0) {
      const char* from = first + lane_ / Units * step + lane_ % Units * 16;
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int row = i * (32 / Units) + lane_ / Units;
        ptx::cp_async_16(to + row * Stride + Policy::in_row(row, lane_ % Units * 16), from);
        from += 32 / Units * step;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int unit = i * 32 + lane_;
        const int row = unit / Units;
        const int at = unit % Units * 16;
        ptx::cp_async_16(to + row * Stride + Policy::in_row(row, at), first + row * step + at);
      }
    }
  }

  template <int Units, int Stride>
  __device__ void copy_side(const Place& place, std::uint8_t* to, const char* row_address,
                            int row_bytes) {
    constexpr int kCopies = Policy::kTile * Units / 32;
    static_assert(kCopies * 32 == Policy::kTile * Units, "whole warps");
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int unit = i * 32 + lane_;
      const int row = unit / Units;
      const int at = unit % Units * 16;
      const auto from =
          __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(row_address), row);
      // An invisible row's address is that of page 0: no byte of it is read.
      ptx::cp_async_16(
          to + row * Stride + Policy::in_row(row, at), reinterpret_cast<const void*>(from + at),
          row >= place.begin && row < place.end && (!Policy::kPadded || at < row_bytes));
    }
  }

  const Params& p_;
  WarpRole role_;
  ItemQueue<Policy> queue_;
  std::uint8_t* ring_;
  std::uint8_t* queries_;
  int lane_;
  bool one_page_;    ///< pages are whole tiles
  int allowed_ = 0;  ///< number of the last item that may be entered
  int number_ = 0;   ///< of item_
  Item item_;
  int tile_ = 0;
  bool entered_ = false;
  int stage_ = 0;
  int started_ = 0;
  Place next_;
};

}  // namespace attune::kernels::paged_decode::sm80
