// The third warpgroup of the Hopper latent kernel: queries and key tiles into shared memory, keys
// either a page at a time by the copy engine, or token by token from pages of any size, or widened
// from packed pages (packed_keys.cuh).
#pragma once

#include <limits>

#include "kernels/mla_decode/sm90/collective.cuh"
#include "kernels/ptx/atomic.cuh"
#include "kernels/ptx/cp_async.cuh"

namespace attune::kernels::mla_decode::sm90 {

// A source of keys says what type latents have in shared memory (Latent), whether the copy engine's
// map of the cache is used (kMapped), whether requests are lists (kLists), whether keys and queries
// have rope columns behind the latents (kRope), whether sinks may be given (kSinks), whether values
// behind the last key are zero already (kClearsBehind), whether the products may read what has
// arrived without a fence (kFences), how many threads load, and arrivals(piece) at a full barrier.
// load() takes the piece's number in the order of a tile's four latent pieces.

/// Pages of one tile: a thread asks for panels, the copy engine brings them.
template <class Element>
class PageKeys {
 public:
  using Roles = sm90::Roles<128, 224, 56>;
  using Latent = Element;
  static constexpr bool kWidens = false;
  static constexpr bool kMapped = true;
  static constexpr bool kLists = false;
  static constexpr bool kRope = true;
  static constexpr bool kSinks = false;
  static constexpr bool kClearsBehind = false;
  static constexpr bool kFences = true;
  static constexpr int kThreads = 1;
  /// A piece is complete when the thread has announced it and its bytes have come.
  static __device__ constexpr int arrivals(int) { return 1; }

  __device__ PageKeys(const Params& params, const CUtensorMap& map)
      : params_(params),
        map_(map),
        hint_(params.lanes == 1 ? ptx::CacheHint::evict_first : ptx::CacheHint::evict_normal) {}

  __device__ __forceinline__ void begin(const attention::LatentItem& item) {
    page_ = item.first_page;
  }

  /// What the next tile needs, asked for long before.
  __device__ __forceinline__ void look_ahead(const attention::LatentItem& item, int tile) {
    next_page_ = tile + 1 < item.tile_end ? params_.kv_indices[item.entry_begin + tile + 1] : 0;
  }

  template <int Panels>
  __device__ __forceinline__ void load(Element (*to)[kPanel], int first, ptx::Mbarrier& full) {
    ptx::mbarrier_arrive_expect(full, Panels * kPanel * sizeof(Element));
#pragma unroll
    for (int i = 0; i < Panels; ++i)
      ptx::tma_load(to[i], map_, full, hint_, (first + i) * 64, 0, page_);
  }

  __device__ __forceinline__ void advance() { page_ = next_page_; }

 private:
  const Params& params_;
  const CUtensorMap& map_;
  ptx::CacheHint hint_;
  int page_ = 0;
  int next_page_ = 0;
};

/// How gathered keys are named.
enum class Named : std::uint8_t {
  by_pages,         ///< of any size
  by_slots,         ///< in lists, one a key
  by_packed_slots,  ///< likewise, tokens of the fp8 cache, whose bytes count in pairs
  in_pools,         ///< likewise, in two pools, keys that are their values and no more
};

/// Gathered: every thread copies one 16-byte chunk of a panel's row for four keys, to where the copy
/// engine would have put it. Keys behind the last become zero.
template <class Element, Named How>
class GatheredKeys {
 public:
  using Roles = sm90::Roles<128, 224, 56>;
  using Latent = Element;
  static constexpr bool kWidens = false;
  static constexpr bool kMapped = false;
  static constexpr bool kLists = How != Named::by_pages;
  static constexpr bool kRope = How != Named::in_pools;
  static constexpr bool kSinks = How == Named::in_pools;
  static constexpr bool kClearsBehind = true;
  static constexpr bool kFences = false;
  static constexpr int kThreads = 128;
  static __device__ constexpr int arrivals(int) { return kThreads; }

  __device__ explicit GatheredKeys(const Params& params) : params_(params) {}
  __device__ GatheredKeys(const Params& params, const CUtensorMap&) : params_(params) {}

  __device__ __forceinline__ void begin(const attention::LatentItem& item) {
    look_ahead(item, item.tile_begin - 1);
    advance();
  }

  __device__ __forceinline__ void look_ahead(const attention::LatentItem& item, int tile) {
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int key = (tile + 1) * kKeys + my_row() + kRowsAtOnce * i;
      const bool exists = tile + 1 < item.tile_end && key < item.kv_len;
      const int entry = kLists ? key : key / params_.page_size;
      if constexpr (!kLists) within_[i] = key - entry * params_.page_size;
      page_[i] = exists ? params_.kv_indices[item.entry_begin + entry] : kNone;
    }
  }

  template <int Panels>
  __device__ __forceinline__ void load(Element (*panels)[kPanel], int first, ptx::Mbarrier& full) {
    copy<Panels>(panels, first * 64, full);
  }

  /// From element `column` of each key on.
  template <int Panels>
  __device__ __forceinline__ void copy(Element (*panels)[kPanel], int column, ptx::Mbarrier& full) {
    const int chunk = static_cast<int>(threadIdx.x % 8);
    const int row = my_row();
    Element* const to = panels[0] + row * 64 + (chunk ^ row % 8) * 8;
    column += chunk * 8;
#pragma unroll
    for (int panel = 0; panel < Panels; ++panel)
#pragma unroll
      for (int i = 0; i < kOfThread; ++i)
        ptx::cp_async_16(to + panel * kPanel + kRowsAtOnce * i * 64,
                         static_cast<const Element*>(params_.k) + offset_[i] + column + panel * 64,
                         exists_[i]);
    ptx::cp_async_mbarrier_arrive(full);
  }

  __device__ __forceinline__ void advance() {
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      exists_[i] = page_[i] != kNone;
      if constexpr (How == Named::in_pools)
        offset_[i] = exists_[i] ? begin_of_slot(params_, page_[i]) : 0;
      else
        offset_[i] = exists_[i] ? page_[i] * (params_.k_page_stride / kOfStride) : 0;
      if constexpr (!kLists)
        if (exists_[i]) offset_[i] += within_[i] * params_.k_token_stride;
    }
  }

 private:
  static constexpr int kOfStride =
      How == Named::by_packed_slots ? static_cast<int>(sizeof(Element)) : 1;
  static constexpr int kRowsAtOnce = kThreads / 8;
  static constexpr int kOfThread = kKeys / kRowsAtOnce;
  static constexpr int kNone = std::numeric_limits<int>::min();  ///< no page and no slot
  static __device__ __forceinline__ int my_row() { return static_cast<int>(threadIdx.x % 128 / 8); }

  const Params& params_;
  int page_[kOfThread];
  int within_[kOfThread];
  bool exists_[kOfThread];
  std::int64_t offset_[kOfThread];
};

template <class Element>
using TokenKeys = GatheredKeys<Element, Named::by_pages>;
template <class Element>
using ListedKeys = GatheredKeys<Element, Named::by_slots>;
template <class Element>
using ListedTokens = GatheredKeys<Element, Named::by_packed_slots>;
template <class Element>
using PooledKeys = GatheredKeys<Element, Named::in_pools>;

/// What a meeting's counter holds when both blocks have drawn and the first's rows are there.
inline constexpr std::int32_t kAllArrived = 3;

/// Where the two blocks of a meeting draw their numbers.
__device__ __forceinline__ std::int32_t* counter_of(const Params& params,
                                                    const attention::LatentItem& item,
                                                    int lane_of_group) {
  return params.arrivals + std::int64_t{item.meeting} * params.lanes + lane_of_group;
}

/// What one thread asks for beside keys, and draws: an item's queries, and who is first at its
/// meeting.
template <class Element, bool Rope>
class Errands {
 public:
  __device__ Errands(Shared<Element>& shared, const Params& params, const CUtensorMap& q_map)
      : shared_(shared),
        params_(params),
        q_map_(q_map),
        bytes_(static_cast<std::uint32_t>(params.heads_per_block * params.tokens_per_block * 64 *
                                          sizeof(Element))) {}

  /// Before an item's first tile.
  __device__ __forceinline__ void ask_queries(const attention::LatentItem& item, int block) {
    ptx::mbarrier_wait(shared_.q_empty, queries_++ % 2 ^ 1);
    ptx::mbarrier_arrive_expect(shared_.q_full, kLatentPanels * bytes_);
    for (int panel = 0; panel < kLatentPanels; ++panel)
      load(shared_.q[panel], panel, shared_.q_full, item, block);
  }
  /// Behind it: its panel lies in room that the item before still uses.
  __device__ __forceinline__ void ask_rope(const attention::LatentItem& item, int block) {
    ptx::mbarrier_wait(shared_.rope_empty, queries_ % 2);
    ask_first_rope(item, block);
  }
  /// Where there is no item before: products start with it.
  __device__ __forceinline__ void ask_first_rope(const attention::LatentItem& item, int block) {
    if constexpr (!Rope) return;
    ptx::mbarrier_arrive_expect(shared_.rope_full, bytes_);
    load(shared_.p[0], kRopePanel, shared_.rope_full, item, block);
  }
  /// Behind its last: the second at a meeting waits for the first.
  __device__ __forceinline__ void draw(const attention::LatentItem& item, int lane_of_group) {
    if (item.meeting >= 0)
      shared_.arrival = ptx::arrive_at(counter_of(params_, item, lane_of_group));
    ptx::mbarrier_arrive(shared_.drawn);
  }

 private:
  __device__ __forceinline__ void load(void* to, int panel, ptx::Mbarrier& full,
                                       const attention::LatentItem& item, int block) {
    ptx::tma_load(to, q_map_, full, ptx::CacheHint::evict_normal, panel * 64,
                  block % params_.head_blocks * params_.heads_per_block,
                  item.q_token + block / params_.head_blocks * params_.tokens_per_block);
  }

  Shared<Element>& shared_;
  const Params& params_;
  const CUtensorMap& q_map_;
  std::uint32_t bytes_;  ///< of a panel
  std::uint32_t queries_ = 0;
};

/// Feeds both rings. Pieces are asked for in the order in which their room is returned.
template <class Keys, class Element>
__device__ void produce(Shared<Element>& shared, const Params& params, const CUtensorMap& q_map,
                        const CUtensorMap& k_map) {
  // The lists are older than the kernel in front.
  const Share share = share_of(params);
  attention::LatentItem item = item_of(params, share, share.begin);
  ptx::dependency_wait();
  Keys keys(params, k_map);
  Errands<Element, Keys::kRope> errands(shared, params, q_map);
  const bool asks = threadIdx.x == kConsumers;
  std::uint32_t tiles = 0;
  for (int i = share.begin; i < share.end; ++i) {
    if (i > share.begin) item = params.items[i];
    if constexpr (Keys::kLists) fit_to_list(params, kKeys, item);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks) continue;
    keys.begin(item);
    for (int tile = item.tile_begin; tile < item.tile_end; ++tile, ++tiles) {
      const int stage = static_cast<int>(tiles % kStages);
      const std::uint32_t parity = tiles / kStages % 2 ^ 1;
      keys.look_ahead(item, tile);
      if (asks && tiles == 0) errands.ask_first_rope(item, block);
      if (asks && tile == item.tile_begin) errands.ask_queries(item, block);
      if constexpr (Keys::kRope) {
        ptx::mbarrier_wait(shared.k_empty[stage][kRopePiece], parity);
        keys.template load<1>(shared.k[stage] + kRopePanel, kRopePanel,
                              shared.k_full[stage][kRopePiece]);
      }
#pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        const int half = stage ^ turn;
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          const int piece = 1 + 2 * half + pair;
          ptx::mbarrier_wait(shared.k_empty[stage][piece], parity);
          const int first = kHalfPanels * half + 2 * pair;
          keys.template load<2>(shared.k[stage] + first, first, shared.k_full[stage][piece]);
        }
      }
      keys.advance();
      if (asks && tile == item.tile_begin && tiles > 0) errands.ask_rope(item, block);
      if (asks && tile + 1 == item.tile_end) errands.draw(item, share.lane);
    }
  }
}

}  // namespace attune::kernels::mla_decode::sm90
