// The Hopper prefill kernel: warp roles and their order. One warp takes work and brings queries,
// one feeds a ring of key tiles, one a ring of value tiles; consumer warpgroups of 64 query rows
// each work through one stream of tiles that does not pause between work items: while a finished
// item's output is divided and written, the next item's first product already runs.
//
//   consumer, item of tiles n-1 … 0:      tensor cores           warpgroup's own pipes
//     turn j:   issue Q K_{j-1}, P_j V_j   [QK_{j-1}][P_j V_j]   softmax of j-1 under P_j V_j
//     last:     issue P_0 V_0, then the next item's Q K          output under the next QK
//
// FlashAttention-3 (arXiv:2407.08608) has the roles, the turns and the overlap within a warpgroup.
#pragma once

#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ragged_prefill/sm90/collective.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

/// Which work items a block takes: from a shared counter, so that a block that is done early takes
/// more.
class ItemSource {
 public:
  __device__ explicit ItemSource(WorkList& list) : list_(list), count_(list.num_items) {}

  [[nodiscard]] __device__ std::uint32_t count() const { return count_; }

  /// Asks for the next item's number; claim and take alternate. All lanes.
  __device__ void claim() {
    if (threadIdx.x % 32 == 0) claimed_ = gridDim.x + atomicAdd(&list_.next, 1u);
  }

  /// The number asked for; count() and beyond when there is no more.
  __device__ std::uint32_t take() {
    const bool first = first_;
    first_ = false;
    return first ? blockIdx.x : __shfl_sync(0xffffffffu, claimed_, 0);
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
  std::uint32_t claimed_ = 0;
  bool first_ = true;
};

/// Keys or values in memory; strides count elements.
struct Cache {
  const void* data;
  std::int64_t page_stride;
  std::int64_t token_stride;
  std::int64_t head_stride;
};

/// One operand's key tiles into its ring; one warp. Keys and values have a warp each, so that a
/// full ring of one never holds up the other. Ragged rows and pages of a multiple of 8 tokens come
/// as boxes of the copy engine, other pages by 16-byte copies. Rows behind the last key's box stay
/// as they are.
template <class C, int HeadDim, int Stages>
class TileLoader {
 public:
  using Element = typename C::Element;
  using Tile = Element[C::kKeyTile * HeadDim];

  __device__ TileLoader(Tile (&tiles)[Stages], ptx::Mbarrier (&full)[Stages],
                        ptx::Mbarrier (&empty)[Stages], const CUtensorMap& map, const Cache& cache,
                        const Params& params)
      : tiles_(tiles), full_(full), empty_(empty), map_(map), cache_(cache), params_(params) {}

  __device__ void load_all(SharedOf<C>& shared) {
    for (Ring<kItemStages> at;; at.advance()) {
      ptx::mbarrier_wait(shared.item_full[at.stage], at.parity);
      const WorkItem item = shared.item[at.stage];
      if (item.tile_end == 0) return;
      const int head = item.head / params_.group;
      Slots slots;
      if constexpr (C::kGather) slots = find_slots(item, item.tile_end - 1);
#pragma unroll 1
      for (int tile = item.tile_end - 1; tile >= item.tile_begin; --tile) {
        const int key = tile * C::kKeyTile;
        const int valid = max(0, min(C::kKeyTile, item.kv_len - key));
        if constexpr (C::kGather) {
          const Slots now = slots;
          if (tile > item.tile_begin) slots = find_slots(item, tile - 1);
          gather(now, head, valid);
        } else if (params_.kv_indices == nullptr) {
          load_rows(item.kv_start + key, head, valid > 0);
        } else {
          load_pages(item.kv_start, key, head, valid);
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
  __device__ void load_pages(int first_entry, int first_key, int head, int valid) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = lane * params_.box_rows;
    const bool mine = row < valid;
    const int entry = (first_key + row) / params_.page_size;
    const int page = mine ? params_.kv_indices[first_entry + entry] : 0;
    const int boxes = __popc(__ballot_sync(0xffffffffu, mine));
    wait();
    if (lane == 0)
      ptx::mbarrier_arrive_expect(
          full_[ring_.stage], static_cast<std::uint32_t>(boxes * params_.box_rows * HeadDim * 2));
    __syncwarp();
    if (mine) load_panels(row, first_key + row - entry * params_.page_size, head, page);
  }

  /// Where this lane's rows of a tile lie, one of each 32: page, and token within it.
  struct Slots {
    int page[kSlices];
    int token[kSlices];
  };
  /// A tile ahead: page ids come from far.
  __device__ Slots find_slots(const WorkItem& item, int tile) {
    Slots slots;
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      const int key = tile * C::kKeyTile + 32 * slice + static_cast<int>(threadIdx.x % 32);
      const int entry = params_.page_size == 1 ? key : key / params_.page_size;
      slots.token[slice] = key - entry * params_.page_size;
      slots.page[slice] = key < item.kv_len ? params_.kv_indices[item.kv_start + entry] : 0;
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
        if (row >= valid) continue;
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          ptx::cp_async_16(to + panel * C::kKeyTile * 64, from + 64 * panel);
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
  Ring<Stages> ring_{0, 1};
};

/// Where the next item and its queries go; one warp.
template <class C>
class QueryLoader {
 public:
  __device__ QueryLoader(SharedOf<C>& shared, const CUtensorMap& map)
      : shared_(shared), map_(map) {}

  /// An item without tiles ends everybody's work. Its place is free: 4 items back, all have read it
  /// before the queries of the item 2 back were given up.
  __device__ void publish(const WorkItem& item) {
    if (threadIdx.x % 32 == 0) {
      shared_.item[at_.stage] = item;
      ptx::mbarrier_arrive(shared_.item_full[at_.stage]);
    }
    __syncwarp();
    at_.advance();
  }

  __device__ void load(const WorkItem& item) {
    ptx::mbarrier_wait(shared_.q_empty[ring_.stage], ring_.parity);
    if (threadIdx.x % 32 == 0) {
      ptx::Mbarrier& full = shared_.q_full[ring_.stage];
      if (item.tile_end == 0) {
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
  }

 private:
  SharedOf<C>& shared_;
  const CUtensorMap& map_;
  Ring<kItemStages> at_;
  Ring<C::kQueryStages> ring_{0, 1};
};

/// The warp that takes work: hands items to the loaders of keys and values, then brings the
/// queries, as far ahead as there is room.
template <class C>
__device__ void hand_out(SharedOf<C>& shared, const Params& params, const CUtensorMap& q_map) {
  ItemSource source(*params.list);
  QueryLoader<C> queries(shared, q_map);
  WorkItem item;
  do {
    const std::uint32_t number = source.take();
    item = WorkItem{};
    if (number < source.count()) {
      item = params.items[number];
      source.claim();
    }
    queries.publish(item);
    queries.load(item);
  } while (item.tile_end != 0);
  source.finish();
}

/// One arrival a warp.
__device__ __forceinline__ void release(ptx::Mbarrier& empty) {
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty);
}

template <int N>
__device__ __forceinline__ void copy(float (&to)[N], const float (&from)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = from[i];
}

/// Finished tiles on their way out, of one warpgroup. Its first thread asks the copy engine, and
/// hands the query stage back once the engine has read what was staged in its place.
template <class C>
class Writer {
 public:
  __device__ Writer(SharedOf<C>& shared, const Params& params, const CUtensorMap& map,
                    int warpgroup)
      : shared_(shared), params_(params), map_(map), warpgroup_(warpgroup) {}

  __device__ __forceinline__ void write(Accumulators<C>& o, int first_row, const WorkItem& item,
                                        int stage) {
    if constexpr (C::kOutput == Output::registers) {
      write_rows<C>(o, params_, first_row, item);
    } else if constexpr (C::kOutput == Output::states) {
      write_states<C>(o, params_, first_row, item);
    } else {
      constexpr int kPanel = C::kQueryTile * 64;
      typename C::Element* rows;
      if constexpr (C::kOutput == Output::in_queries) {
        rows = shared_.q[stage] + warpgroup_ * 64 * 64;
      } else {
        rows = shared_.o + warpgroup_ * 64 * 64;
        if (threadIdx.x % 128 == 0) ptx::bulk_wait_read();
        barrier();
      }
      const int tokens = 64 >> params_.pack_shift;
      const int token = warpgroup_ * tokens;
      const bool full = token + tokens <= item.q_tokens;
      if (full)
        stage_rows<C>(o, rows, kPanel);
      else
        write_rows<C>(o, params_, first_row, item);
      barrier();
      if (full && threadIdx.x % 128 == 0) {
        for (int panel = 0; panel < C::kHeadDimVo / 64; ++panel)
          ptx::tma_store(map_, rows + panel * kPanel, panel * 64, item.head, item.q_token + token);
        ptx::bulk_commit();
      }
      unreleased_ = stage;
    }
  }

  /// Before the stage written from is needed again, and before the kernel ends.
  __device__ __forceinline__ void settle() {
    if constexpr (C::kStaged) {
      if (unreleased_ >= 0 && threadIdx.x % 128 == 0) {
        ptx::bulk_wait_read();
        if constexpr (C::kOutput == Output::in_queries)
          ptx::mbarrier_arrive(shared_.q_empty[unreleased_]);
      }
      unreleased_ = -1;
    }
  }

 private:
  __device__ __forceinline__ void barrier() {
    ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
  }

  SharedOf<C>& shared_;
  const Params& params_;
  const CUtensorMap& map_;
  int warpgroup_;
  int unreleased_ = -1;
};

template <class C>
__device__ void consume(SharedOf<C>& shared, const Params& params, const CUtensorMap& o_map,
                        int warpgroup) {
  const int first_row =
      warpgroup * 64 + static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  const int warp_row =
      warpgroup * 64 + 16 * __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x % 128 / 32), 0);
  constexpr int kTurnThreads = 256;
  const auto turn_wait = [&] { ptx::named_barrier_sync(kTurnBarrier + warpgroup, kTurnThreads); };
  const auto turn_pass = [&] {
    ptx::named_barrier_arrive(kTurnBarrier + (warpgroup + 1) % C::kWarpgroups, kTurnThreads);
  };

  const std::uint64_t q_tile = ptx::wgmma_descriptor(shared.q[0]) + (warpgroup * 64 * 128 >> 4);
  const std::uint64_t k_tile = ptx::wgmma_descriptor(shared.k[0]);
  const ValueDescriptors v_tile = value_descriptors<C>(shared);
  constexpr std::uint64_t kQStep = sizeof(shared.q[0]) >> 4;
  constexpr std::uint64_t kKStep = sizeof(shared.k[0]) >> 4;

  const float log2_scale = (params.soft_cap > 0 ? params.soft_cap : params.scale) * kLog2E;
  const float inverse_scale = 1.0f / log2_scale;
  const float cap_scale = params.soft_cap > 0 ? params.scale / params.soft_cap : 0.0f;

  // Scores live in fresh arrays from product to softmax: carried around the loop as accumulators,
  // they would make the assembler wait for every product in turn (its remark C7515).
  float first_scores[C::kKeyTile / 2];
  Accumulators<C> o;
  std::uint32_t p[C::kKeyTile / 16][4];
  Ring<C::kQueryStages> q;
  Ring<C::kKeyStages> k;
  Ring<C::kValueStages> v;
  Writer<C> writer(shared, params, o_map, warpgroup);

  // The copies of a gather are ordinary writes, which products do not see by themselves.
  const auto landed = [&] {
    if constexpr (C::kGather) ptx::fence_proxy_async();
  };
  const auto wait_for_keys = [&](bool here) {
    if (!here) ptx::mbarrier_wait(shared.k_full[k.stage], k.parity);
    landed();
  };
  const auto start_qk = [&](float(&s)[C::kKeyTile / 2]) {
    issue_qk<C>(s, q_tile + q.stage * kQStep, k_tile + k.stage * kKStep);
    ptx::wgmma_commit();
  };
  const auto wait_for_values = [&](bool first, const WorkItem& item) {
    ptx::mbarrier_wait(shared.v_full[v.stage], v.parity);
    const int end = item.tile_end * C::kKeyTile;
    landed();
    if (first && end > item.kv_len) {
      const int valid = max(0, item.kv_len - (end - C::kKeyTile));
      clear_tail<C>(shared.v[v.stage], valid, warpgroup);
    }
  };
  const auto start_pv = [&](bool accumulate) {
    issue_pv<C>(o, p, v_tile, v.stage, accumulate);
    ptx::wgmma_commit();
  };

  if (warpgroup == C::kWarpgroups - 1) turn_pass();
  ptx::mbarrier_wait(shared.q_full[0], 0);
  Ring<kItemStages> at;
  WorkItem item = shared.item[0];
  if (item.tile_end != 0) {
    float s[C::kKeyTile / 2];
    wait_for_keys(false);
    ptx::wgmma_fence();
    start_qk(s);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(s);
    copy(first_scores, s);
  }
  while (item.tile_end != 0) {
    Rows rows;
    rows.kv_len = item.kv_len;
    rows.first = item.q_position + (warpgroup * 64 >> params.pack_shift);
    rows.last = item.q_position + ((warpgroup * 64 + 63) >> params.pack_shift);
    rows.warp_first = item.q_position + (warp_row >> params.pack_shift);
    rows.warp_last = item.q_position + ((warp_row + 15) >> params.pack_shift);
    rows.own[0] = item.q_position + (first_row >> params.pack_shift);
    rows.own[1] = item.q_position + ((first_row + 8) >> params.pack_shift);
    RowState state;
    float factor[2];
    int tile = item.tile_end - 1;

    const auto receive_scores = [&](float(&s)[C::kKeyTile / 2]) {
      release(shared.k_empty[k.stage]);
      k.advance();
      if (C::kOutput != Output::in_queries && tile == item.tile_begin) {
        __syncwarp();
        release(shared.q_empty[q.stage]);
      }
      if (params.soft_cap > 0) apply_soft_cap(s, cap_scale);
    };

    receive_scores(first_scores);
    first_softmax<C>(p, first_scores, params, rows, tile, state, log2_scale, inverse_scale);
    writer.settle();
    bool accumulate = false;
    bool keys_ready = false;
    while (tile > item.tile_begin) {
      --tile;
      float s[C::kKeyTile / 2];
      wait_for_keys(keys_ready);
      wait_for_values(!accumulate, item);
      turn_wait();
      ptx::wgmma_fence();
      start_qk(s);
      start_pv(accumulate);
      turn_pass();
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(s);
      const auto next_k = k.next();
      keys_ready = ptx::mbarrier_test(shared.k_full[next_k.stage], next_k.parity);
      receive_scores(s);
      if (needs_mask<C>(params, rows, tile)) apply_mask<C>(s, params, rows, tile);
      const bool moved = online_softmax<C>(s, state, log2_scale, inverse_scale, factor);
      // The next keys are asked for early and waited for here: the branch keeps the assembler from
      // moving the softmax behind the wait for the product that runs beside it.
      if (tile > item.tile_begin && !keys_ready) {
        ptx::mbarrier_wait(shared.k_full[k.stage], k.parity);
        keys_ready = true;
      }
      ptx::wgmma_wait<0>();
      o.pin();
      release(shared.v_empty[v.stage]);
      v.advance();
      if (!C::Rule::kLazyRescale || moved) o.rescale(factor);
      pack_probabilities<C>(p, s);
      accumulate = true;
    }

    // The last product of this item, then the first of the next, whose scores wait their turn while
    // this item's output is written.
    wait_for_values(!accumulate, item);
    turn_wait();
    ptx::wgmma_fence();
    start_pv(accumulate);
    const int stage = q.stage;
    q.advance();
    at.advance();
    ptx::mbarrier_wait(shared.q_full[q.stage], q.parity);
    const WorkItem next = shared.item[at.stage];
    float s[C::kKeyTile / 2];
    // Behind the last item the product runs on old bytes, unused: a branch around it would make the
    // assembler lose track of which products are under way (C7514).
    if (next.tile_end != 0) wait_for_keys(false);
    start_qk(s);
    turn_pass();
    ptx::wgmma_wait<1>();
    o.pin();
    release(shared.v_empty[v.stage]);
    v.advance();
    float lse[2];
    normalise<C>(o, lse, state, params, first_row, item);
    writer.write(o, first_row, item, stage);
    write_lse<C>(lse, params, first_row, item);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(s);
    copy(first_scores, s);
    item = next;
  }
  writer.settle();
  if (warpgroup == 0) turn_wait();
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    prefill(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
            const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap o_map,
            const __grid_constant__ Params params) {
  SharedOf<C>& shared = *reinterpret_cast<SharedOf<C>*>(ptx::dynamic_shared<1024>());
  if constexpr (C::kOutput == Output::states) ptx::dependency_release();
  // Through a shuffle, so that the compiler knows it as one value a warp and does not compute it
  // anew.
  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0);

  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = 4 * C::kWarpgroups;
    constexpr int kLoaderArrivals = C::kGather ? 32 : 1;
    constexpr bool kByWriter = C::kOutput == Output::in_queries;
    for (int i = 0; i < C::kQueryStages; ++i) {
      ptx::mbarrier_init(shared.q_full[i], 1);
      ptx::mbarrier_init(shared.q_empty[i], kByWriter ? C::kWarpgroups : kConsumerWarps);
    }
    for (int i = 0; i < kItemStages; ++i) ptx::mbarrier_init(shared.item_full[i], 1);
    for (int i = 0; i < C::kKeyStages; ++i) {
      ptx::mbarrier_init(shared.k_full[i], kLoaderArrivals);
      ptx::mbarrier_init(shared.k_empty[i], kConsumerWarps);
    }
    for (int i = 0; i < C::kValueStages; ++i) {
      ptx::mbarrier_init(shared.v_full[i], kLoaderArrivals);
      ptx::mbarrier_init(shared.v_empty[i], kConsumerWarps);
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch(q_map);
    ptx::tma_prefetch(k_map);
    ptx::tma_prefetch(v_map);
  }
  for (int i = static_cast<int>(threadIdx.x); i < 16 * 64; i += C::kThreads)
    shared.ones[i] = static_cast<typename C::Element>(1.0f);
  ptx::fence_proxy_async();
  __syncthreads();

  if (warpgroup == 0) {
    ptx::registers_give<C::kProducerRegisters>();
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
    if (warp == 0) {
      const Cache keys{params.k, params.k_page_stride, params.k_token_stride, params.k_head_stride};
      TileLoader<C, C::kHeadDimQk, C::kKeyStages>(shared.k, shared.k_full, shared.k_empty, k_map,
                                                  keys, params)
          .load_all(shared);
    } else if (warp == 1) {
      const Cache values{params.v, params.v_page_stride, params.v_token_stride,
                         params.v_head_stride};
      TileLoader<C, C::kHeadDimVo, C::kValueStages>(shared.v, shared.v_full, shared.v_empty, v_map,
                                                    values, params)
          .load_all(shared);
    } else if (warp == 2) {
      hand_out<C>(shared, params, q_map);
    }
  } else {
    ptx::registers_take<C::kConsumerRegisters>();
    consume<C>(shared, params, o_map, warpgroup - 1);
  }
}

}  // namespace attune::kernels::ragged_prefill::sm90
