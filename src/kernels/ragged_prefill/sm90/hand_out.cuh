// Which work items a block does, and when it learns of them.
#pragma once

#include "kernels/ptx/tma.cuh"
#include "kernels/ragged_prefill/sm90/config.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

/// Which work items a block takes: from a shared counter, so that a block that is done early takes
/// more.
class ItemSource {
 public:
  __device__ explicit ItemSource(WorkList& list) : list_(list), count_(list.num_items) {}

  [[nodiscard]] __device__ std::uint32_t count() const { return count_; }

  /// Where item `number` is listed, and which tile of heads it is.
  struct Place {
    std::uint32_t listed;
    std::uint32_t heads;
    std::uint32_t row;  ///< among all tiles of heads of all that are listed, in that order
  };
  [[nodiscard]] __device__ Place place(std::uint32_t number) const {
    const std::uint32_t listed = list_.num_listed;
    const std::uint32_t together = list_.heads_together;
    const std::uint32_t group = number / (listed * together);
    const std::uint32_t rest = number - group * listed * together;
    const std::uint32_t all = count_ / listed;
    const std::uint32_t here = min(together, all - group * together);
    const std::uint32_t at = rest / here;
    const std::uint32_t heads = group * together + rest - at * here;
    return {at, heads, at * all + heads};
  }

  /// The next item's number; count() and beyond when there is no more. All lanes.
  __device__ std::uint32_t take() {
    if (first_) {
      first_ = false;
      return blockIdx.x;
    }
    std::uint32_t claimed = 0;
    if (threadIdx.x % 32 == 0) claimed = gridDim.x + atomicAdd(&list_.next, 1u);
    return __shfl_sync(0xffffffffu, claimed, 0);
  }

  /// Once, after the end of the list was taken: the last block leaves the counters at 0.
  __device__ void finish() {
    if (threadIdx.x % 32 != 0) return;
    if (atomicAdd(&list_.finished, 1u) == gridDim.x - 1) {
      list_.next = 0;
      list_.finished = 0;
    }
  }

 private:
  WorkList& list_;
  std::uint32_t count_;
  bool first_ = true;
};

/// Takes work: hands items to the loaders of keys and values, brings the queries. One warp. The
/// next item is taken when the last keys of this one are being asked for, not earlier: who takes
/// work long before it can begin leaves the others idle at the end.
template <class C>
class HandOut {
 public:
  __device__ HandOut(SharedOf<C>& shared, const Params& params, const CUtensorMap& q_map)
      : shared_(shared), params_(params), map_(q_map), source_(*params.list) {}

  /// Everything that is left, as far ahead as there is room.
  __device__ void run() {
    while (!ended_) {
      if (!published_) {
        if (!first_) ptx::mbarrier_wait(shared_.item_wanted, wanted_parity_);
        publish();
      }
      ptx::mbarrier_wait(shared_.q_empty[ring_.stage], ring_.parity);
      bring_queries();
    }
  }

  /// What can be done without waiting.
  __device__ void step() {
    if (ended_) return;
    if (!published_) {
      if (!first_ && !here(shared_.item_wanted, wanted_parity_)) return;
      publish();
    }
    if (here(shared_.q_empty[ring_.stage], ring_.parity)) bring_queries();
  }
  /// Waits, and works meanwhile.
  __device__ void wait(ptx::Mbarrier& barrier, std::uint32_t parity) {
    while (!here(barrier, parity)) step();
  }

 private:
  __device__ static bool here(ptx::Mbarrier& barrier, std::uint32_t parity) {
    return __all_sync(0xffffffffu, ptx::mbarrier_test(barrier, parity));
  }

  /// The next item. One without tiles ends everybody's work. Its place is free: 4 items back, all
  /// have read it before the queries of the item 2 back were given up.
  __device__ void publish() {
    if (!first_) wanted_parity_ ^= 1;
    first_ = false;
    const std::uint32_t number = source_.take();
    if (threadIdx.x % 32 == 0) {
      PrefillTile item;
      if (number < source_.count()) {
        const ItemSource::Place place = source_.place(number);
        item = params_.items[place.listed];
        item.head += static_cast<std::int32_t>(place.heads << params_.pack_shift);
        if constexpr (C::kBlocks) {
          item.tile_begin = 0;
          item.tile_end = params_.num_kept[place.row];
          item.o_token = static_cast<std::int32_t>(place.row) * params_.kept_stride;
        }
      }
      shared_.item[at_.stage] = item;
      ptx::mbarrier_arrive(shared_.item_full[at_.stage]);
    }
    __syncwarp();
    published_ = true;
  }

  /// Of the item published last, into an empty stage.
  __device__ void bring_queries() {
    const PrefillTile& item = shared_.item[at_.stage];
    ended_ = item.tile_end == 0;
    if (threadIdx.x % 32 == 0) {
      ptx::Mbarrier& full = shared_.q_full[ring_.stage];
      if (ended_) {
        ptx::mbarrier_arrive(full);
      } else {
        ptx::mbarrier_arrive_expect(full, sizeof(shared_.q[0]));
#pragma unroll
        for (int panel = 0; panel < C::kHeadDimQk / 64; ++panel)
          ptx::tma_load(shared_.q[ring_.stage] + panel * C::kQueryTile * 64, map_, full,
                        ptx::CacheHint::evict_first, panel * 64, item.head, item.q_token);
      }
    }
    __syncwarp();
    ring_.advance();
    at_.advance();
    published_ = false;
    if (ended_) source_.finish();
  }

  SharedOf<C>& shared_;
  const Params& params_;
  const CUtensorMap& map_;
  ItemSource source_;
  bool first_ = true;
  bool published_ = false;
  bool ended_ = false;
  std::uint32_t wanted_parity_ = 0;
  ptx::Ring<kItemStages> at_;
  ptx::Ring<C::kQueryStages> ring_{0, 1};
};

}  // namespace attune::kernels::ragged_prefill::sm90
