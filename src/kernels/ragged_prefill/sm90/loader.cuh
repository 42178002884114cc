// Keys and values on their way into shared memory, as they are stored.
#pragma once

#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ragged_prefill/sm90/config.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

/// Keys or values in memory; strides count elements.
struct Cache {
  const void* data;
  std::int64_t page_stride;
  std::int64_t token_stride;
  std::int64_t head_stride;
};

/// Where a request's key lies: which of its pages, and where there.
struct PagePlace {
  int entry;
  int slot;
};
/// By a product: a quotient's reciprocal and conversions would take the exponentials' pipe.
__device__ __forceinline__ PagePlace page_place(const Params& params, int key) {
  const auto entry = static_cast<int>(base::divide(static_cast<std::uint32_t>(key), params.page));
  return {entry, key - entry * static_cast<int>(params.page.divisor)};
}

__device__ __forceinline__ KeptTile kept_tile(const Params& params, const PrefillTile& item,
                                              int n) {
  const int2 at = __ldg(reinterpret_cast<const int2*>(params.kept) + item.o_token + n);
  return {at.x, static_cast<std::uint32_t>(at.y)};
}

/// The tile of an item with which the next item is asked for.
__device__ __forceinline__ int tile_to_want_at(const PrefillTile& item) {
  return min(item.tile_end - 1, item.tile_begin + kTilesLeft);
}
template <class S>
__device__ __forceinline__ void want_item(S& shared) {
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.item_wanted);
}

/// One operand's key tiles into its ring; one warp. Keys and values have a warp each, so that a
/// full ring of one never holds up the other. Ragged rows and pages of a multiple of 8 tokens come
/// as boxes of the copy engine, other pages by 16-byte copies. Rows behind the last key's box stay
/// as they are; gathered ones become zero.
template <class C, int HeadDim, int Stages>
class TileLoader {
 public:
  using Element = typename C::Element;
  using Tile = Element[C::kKeyTile * HeadDim];

  __device__ TileLoader(Tile (&tiles)[Stages], ptx::Mbarrier (&full)[Stages],
                        ptx::Mbarrier (&empty)[Stages], const CUtensorMap& map, const Cache& cache,
                        const Params& params)
      : tiles_(tiles), full_(full), empty_(empty), map_(map), cache_(cache), params_(params) {}

  /// `wants_items`: says when the next item is to be taken.
  __device__ void load_all(SharedOf<C>& shared, bool wants_items) {
    for (ptx::Ring<kItemStages> at;; at.advance()) {
      ptx::mbarrier_wait(shared.item_full[at.stage], at.parity);
      const PrefillTile item = shared.item[at.stage];
      if (item.tile_end == 0) return;
      const int head = item.head / params_.group;
      const int want_at = tile_to_want_at(item);
      Slots slots;
      if constexpr (C::kGather) slots = find_slots(item, item.tile_end - 1);
      int next_kept = 0;
      if constexpr (C::kBlocks) next_kept = kept_tile(params_, item, item.tile_end - 1).tile;
#pragma unroll 1
      for (int tile = item.tile_end - 1; tile >= item.tile_begin; --tile) {
        if (wants_items && tile == want_at) want_item(shared);
        int key = tile * C::kKeyTile;
        if constexpr (C::kBlocks) {
          key = next_kept * C::kKeyTile;
          if (tile > item.tile_begin) next_kept = kept_tile(params_, item, tile - 1).tile;
        }
        const int valid = max(0, min(C::kKeyTile, item.kv_len - key));
        if constexpr (C::kGather) {
          const Slots now = slots;
          if (tile > item.tile_begin) slots = find_slots(item, tile - 1);
          gather(now, head, valid);
        } else if (params_.kv_indices == nullptr) {
          load_rows(item.kv_start + key, head, valid > 0);
        } else {
          load_pages(item.kv_start, key, head, item.kv_len);
        }
        __syncwarp();
        ring_.advance();
      }
    }
  }

 private:
  static constexpr int kPanels = HeadDim / 64;
  static constexpr int kSlices = (C::kKeyTile + 31) / 32;

  __device__ void wait() { ptx::mbarrier_wait(empty_[ring_.stage], ring_.parity); }

  __device__ void load_panels(int first_row, int row, int head, int page) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      ptx::tma_load(tiles_[ring_.stage] + (panel * C::kKeyTile + first_row) * 64, map_,
                    full_[ring_.stage], ptx::CacheHint::evict_normal, panel * 64, row, head, page);
  }

  __device__ void load_rows(int row, int head, bool any) {
    wait();
    if (threadIdx.x % 32 != 0) return;
    ptx::mbarrier_arrive_expect(full_[ring_.stage], any ? sizeof(Tile) : 0);
    if (any) load_panels(0, row, head, 0);
  }

  /// A lane a box; page ids are on their way while the ring is full.
  __device__ void load_pages(int first_entry, int first_key, int head, int kv_len) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = lane * params_.box_rows;
    const bool mine = row < C::kKeyTile && first_key + row < kv_len;
    const PagePlace at = page_place(params_, first_key + row);
    const int page = mine ? params_.kv_indices[first_entry + at.entry] : 0;
    const std::uint32_t boxes = __ballot_sync(0xffffffffu, mine);
    wait();
    ptx::Mbarrier& full = full_[ring_.stage];
    if (first_key + C::kKeyTile <= kv_len) {
      if (lane == 0) ptx::mbarrier_arrive_expect(full, sizeof(Tile));
    } else if (lane == 0) {  // a population count waits in line with the exponentials, too
      ptx::mbarrier_arrive_expect(
          full, static_cast<std::uint32_t>(__popc(boxes) * params_.box_rows * HeadDim * 2));
    }
    __syncwarp();
    if (mine) load_panels(row, at.slot, head, page);
  }

  /// Where this lane's rows of a tile lie, one of each 32: page, and token within it.
  struct Slots {
    int page[kSlices];
    int token[kSlices];
  };
  /// A tile ahead: page ids come from far.
  __device__ Slots find_slots(const PrefillTile& item, int tile) {
    Slots slots;
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      const int key = tile * C::kKeyTile + 32 * slice + static_cast<int>(threadIdx.x % 32);
      const PagePlace at = page_place(params_, key);
      slots.token[slice] = at.slot;
      slots.page[slice] = key < item.kv_len ? params_.kv_indices[item.kv_start + at.entry] : 0;
    }
    return slots;
  }

  /// Eight lanes a row: the lane that knows where it lies tells them. All lanes arrive, when their
  /// copies have; nobody waits for them here.
  __device__ void gather(const Slots& slots, int head, int valid) {
    wait();
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int chunk = lane % 8;
    const auto* base =
        static_cast<const Element*>(cache_.data) + head * cache_.head_stride + 8 * chunk;
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      const std::int64_t offset =
          slots.page[slice] * cache_.page_stride + slots.token[slice] * cache_.token_stride;
#pragma unroll
      for (int i = 0; i < 32 && 32 * slice + i < C::kKeyTile; i += 4) {
        const Element* from = base + __shfl_sync(0xffffffffu, offset, i + lane / 8);
        const int row = 32 * slice + i + lane / 8;
        auto* to = tiles_[ring_.stage] + row * 64 + 8 * (chunk ^ (row % 8));
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          ptx::cp_async_16(to + panel * C::kKeyTile * 64, from + 64 * panel, row < valid);
      }
    }
    ptx::cp_async_mbarrier_arrive(full_[ring_.stage]);
  }

  Tile (&tiles_)[Stages];
  ptx::Mbarrier (&full_)[Stages];
  ptx::Mbarrier (&empty_)[Stages];
  const CUtensorMap& map_;
  const Cache cache_;
  const Params& params_;
  ptx::Ring<Stages> ring_{0, 1};
};

}  // namespace attune::kernels::ragged_prefill::sm90
