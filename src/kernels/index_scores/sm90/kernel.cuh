// Scores of an indexer as matrix products: keys are rows of the products, (token, head) pairs their
// columns, so that a thread has sixteen or thirty-two heads of a score to itself and four threads
// have them all.
//
// A group of tokens stays in shared memory while its keys go by, 128 at a time, 64 for each of two
// warpgroups. Columns are in two halves where there are many: one's products run while the other's
// are weighted and summed. DeepGEMM (github.com/deepseek-ai/DeepGEMM) has the idea of the rows.
#pragma once

#include <cstdint>

#include "kernels/index_scores/sm90/launch.hpp"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace attune::kernels::index_scores::sm90 {

inline constexpr int kConsumers = 256;
inline constexpr int kProducers = 128;
inline constexpr int kThreads = kConsumers + kProducers;
inline constexpr int kPanels = kMostDim / 64;
inline constexpr int kOfConsumer = 224;  ///< registers
inline constexpr int kOfProducer = 56;
static_assert(kConsumers * kOfConsumer + kProducers * kOfProducer <= 65536);
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Panels of 64 columns (128 bytes), swizzled as the copy engine would (ptx/wgmma.cuh).
template <class Element, int Rows>
struct Shared {
  static constexpr int kStages = Rows > 64 ? 4 : 6;
  alignas(1024) Element q[kPanels][Rows * 64];
  alignas(1024) Element k[kStages][kPanels][kKeys * 64];
  alignas(16) float weights[Rows];

  ptx::Mbarrier q_full;
  ptx::Mbarrier q_empty;
  ptx::Mbarrier k_full[kStages];
  ptx::Mbarrier k_empty[kStages];
};

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int warp_of_group() { return static_cast<int>(threadIdx.x % 128 / 32); }

/// Calls take(group, tile, end) for the tiles of each group that this block has a share of.
template <class Take>
__device__ __forceinline__ void for_each_group(const Group* groups, Share share, Take take) {
  while (share.tiles > 0) {
    const Group group = groups[share.group];
    const int end = min((group.keys + kKeys - 1) / kKeys, share.tile + share.tiles);
    take(group, share.tile, end);
    share.tiles -= end - share.tile;
    share.tile = 0;
    ++share.group;
  }
}

/// Where the keys of a tile lie: lane l of warp w knows key 2 w + l % 2 + 8 (l / 2), and what the
/// next tile needs is asked for a tile before.
class KeyPlaces {
 public:
  __device__ explicit KeyPlaces(const sm80::Params& params) : params_(params) {}

  __device__ __forceinline__ void look_ahead(const Group& group, int tile) {
    const int key = tile * kKeys + 2 * warp_of_group() + lane() % 2 + 8 * (lane() / 2);
    const int entry = key / params_.page_size;
    within_ = key - entry * params_.page_size;
    page_ = key < group.keys ? params_.kv_indices[group.entry_begin + entry] : -1;
  }
  __device__ __forceinline__ void advance() {
    offset_ = page_ < 0 ? -1 : page_ * params_.page_stride + within_ * params_.token_stride;
  }
  /// Of key 2 w + l / 16 + 8 i; -1 where there is none.
  [[nodiscard]] __device__ __forceinline__ std::int64_t offset(int i) const {
    return __shfl_sync(kAllLanes, offset_, 2 * i + lane() / 16);
  }

 private:
  const sm80::Params& params_;
  int page_ = -1;
  int within_ = 0;
  std::int64_t offset_ = -1;
};

/// A group's queries, by the first warp's asking, and their weights, by the others.
template <class Element, int Rows>
__device__ __forceinline__ void load_queries(Shared<Element, Rows>& shared, const sm80::Params& p,
                                             const CUtensorMap& q_map, const Group& group) {
  if (warp_of_group() == 0) {
    if (lane() > 0) return;
    // Of tokens that are not the group's, and of heads that there are none of, no score is kept.
    ptx::mbarrier_arrive_expect(shared.q_full, kPanels * Rows * 64 * sizeof(Element));
    for (int panel = 0; panel < kPanels; ++panel)
      ptx::tma_load(shared.q[panel], q_map, shared.q_full, ptx::CacheHint::evict_normal, panel * 64,
                    0, group.first_token);
    return;
  }
  const int rows_of_token = sm90::rows_of_token(p.num_heads);
  for (int row = static_cast<int>(threadIdx.x) % kProducers - 32; row < Rows;
       row += kProducers - 32) {
    const int token = row / rows_of_token;
    const int head = row - token * rows_of_token;
    shared.weights[row] = token < group.num_tokens && head < p.num_heads
                              ? p.weights[(group.first_token + token) * p.weights_stride + head]
                              : 0.0f;
  }
  ptx::mbarrier_arrive(shared.q_full);
}

/// The page of each half of sixteen tiles, a half a lane; -1 where there is no key.
__device__ __forceinline__ int pages_of_halves(const sm80::Params& p, const Group& group,
                                               int tile) {
  const int key = tile * kKeys + lane() * (kKeys / 2);
  return key < group.keys ? p.kv_indices[group.entry_begin + key / p.page_size] : -1;
}

/// Tiles of pages that halves of a tile divide, by one warp: the copy engine brings them. What lies
/// behind the last key has scores that nobody keeps.
template <class Element, int Rows>
__device__ __forceinline__ void load_pages(Shared<Element, Rows>& shared, const sm80::Params& p,
                                           const CUtensorMap& k_map, const Group& group, int tile,
                                           int end,
                                           ptx::Ring<Shared<Element, Rows>::kStages>& ring) {
  constexpr int kHalf = kKeys / 2;
  constexpr int kAtOnce = 16;
  constexpr std::uint32_t kBytes = kPanels * kHalf * 64 * sizeof(Element);
  int next = pages_of_halves(p, group, tile);
  for (; tile < end; tile += kAtOnce) {
    const int pages = next;
    next = pages_of_halves(p, group, tile + kAtOnce);
    for (int i = 0; i < min(kAtOnce, end - tile); ++i, ring.advance()) {
      const int of_half[2] = {__shfl_sync(kAllLanes, pages, 2 * i),
                              __shfl_sync(kAllLanes, pages, 2 * i + 1)};
      ptx::Mbarrier& full = shared.k_full[ring.stage];
      ptx::mbarrier_wait(shared.k_empty[ring.stage], ring.parity);
      if (lane() > 0) continue;
      ptx::mbarrier_arrive_expect(full, of_half[1] < 0 ? kBytes : 2 * kBytes);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          if (of_half[half] >= 0)
            ptx::tma_load(shared.k[ring.stage][panel] + half * kHalf * 64, k_map, full,
                          ptx::CacheHint::evict_normal, panel * 64,
                          ((tile + i) * kKeys + half * kHalf) % p.page_size, of_half[half]);
    }
  }
}

/// Tiles of any pages, by all producers.
template <class Element, int Rows>
__device__ __forceinline__ void gather_keys(Shared<Element, Rows>& shared, const sm80::Params& p,
                                            const Group& group, int tile, int end,
                                            ptx::Ring<Shared<Element, Rows>::kStages>& ring) {
  const int chunk = lane() % 16;
  const int first_row = 2 * warp_of_group() + lane() / 16;
  const auto* const keys = static_cast<const Element*>(p.keys);
  const bool has_chunk = 8 * chunk < p.head_dim;
  KeyPlaces places(p);
  places.look_ahead(group, tile);
  for (; tile < end; ++tile, ring.advance()) {
    places.advance();
    if (tile + 1 < end) places.look_ahead(group, tile + 1);
    ptx::mbarrier_wait(shared.k_empty[ring.stage], ring.parity);
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
      const std::int64_t offset = places.offset(i);
      const bool valid = offset >= 0 && has_chunk;
      const int row = first_row + 8 * i;
      ptx::cp_async_16(shared.k[ring.stage][chunk / 8] + row * 64 + (chunk % 8 ^ row % 8) * 8,
                       keys + (valid ? offset + 8 * chunk : 0), valid);
    }
    ptx::cp_async_mbarrier_arrive(shared.k_full[ring.stage]);
  }
}

template <class Element, int Rows>
__device__ void produce(Shared<Element, Rows>& shared, const sm80::Params& p,
                        const CUtensorMap& q_map, const CUtensorMap& k_map, const Group* groups,
                        const Share& share) {
  ptx::Ring<Shared<Element, Rows>::kStages> ring{.stage = 0, .parity = 1};
  std::uint32_t query_parity = 1;
  for_each_group(groups, share, [&](const Group& group, int tile, int end) {
    ptx::mbarrier_wait(shared.q_empty, query_parity);
    query_parity ^= 1;
    load_queries(shared, p, q_map, group);
    if (!maps_keys(p.page_size))
      gather_keys(shared, p, group, tile, end, ring);
    else if (warp_of_group() == 0)
      load_pages(shared, p, k_map, group, tile, end, ring);
  });
}

/// d = K Q^T, whole rows at once.
template <class Element, int Rows, int Columns>
__device__ __forceinline__ void issue(float (&d)[Columns / 2], std::uint64_t k, std::uint64_t q) {
  constexpr std::uint64_t kColumnStep = 16 * 2 >> 4;
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
#pragma unroll
    for (int step = 0; step < 4; ++step)
      ptx::wgmma_ss<Element, Columns, ptx::Major::k, ptx::Major::k>(
          d, k + panel * (kKeys * 128 >> 4) + step * kColumnStep,
          q + panel * (Rows * 128 >> 4) + step * kColumnStep, panel + step > 0);
  ptx::wgmma_commit();
}

/// Where a thread's scores go: keys `key` and key + 8 of the group's tokens.
struct Destination {
  float* scores;  ///< of the group's first token
  std::int64_t stride;
  int num_tokens;
  int keys;  ///< that the last token sees; of those that another does not, scores are nobody's
  int rows_of_token;
};

/// Weighs and sums what a thread has, columns first_column … of the group's: 4 c + 2 h + e of d is
/// key h, column 8 c + 2 (t % 4) + e.
template <int Columns>
__device__ __forceinline__ void finish(const float (&d)[Columns / 2], const float* weights,
                                       int first_column, int key, const Destination& to) {
  constexpr int kParts = Columns / 32;
  float sums[kParts][2] = {};
#pragma unroll
  for (int c = 0; c < Columns / 8; ++c) {
    const float2 w =
        *reinterpret_cast<const float2*>(weights + first_column + 8 * c + 2 * (lane() % 4));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float& sum = sums[c / 4][h];
      sum = fmaf(w.x, fmaxf(d[4 * c + 2 * h], 0.0f), sum);
      sum = fmaf(w.y, fmaxf(d[4 * c + 2 * h + 1], 0.0f), sum);
    }
  }
  const bool halves = to.rows_of_token == 64;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    if (halves && part % 2 == 1) continue;
    const int token = (first_column + 32 * part) / to.rows_of_token;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = sums[part][h];
      if (halves) sum += sums[part + 1 < kParts ? part + 1 : part][h];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      if (lane() % 4 == (2 * part + h) % 4 && token < to.num_tokens && key + 8 * h < to.keys)
        to.scores[token * to.stride + key + 8 * h] = sum;
    }
  }
}

template <class Element, int Columns, int Halves>
__device__ void consume(Shared<Element, Columns * Halves>& shared, const sm80::Params& p,
                        const Group* groups, const Share& share, int w) {
  constexpr int kRows = Columns * Halves;
  constexpr std::uint64_t kStageStep = kPanels * kKeys * 128 >> 4;
  constexpr std::uint64_t kHalfStep = Columns * 128 >> 4;
  const std::uint64_t q = ptx::wgmma_descriptor(shared.q[0]);
  const std::uint64_t k = ptx::wgmma_descriptor(shared.k[0][0]) + w * (64 * 128 >> 4);
  const int first_key = 64 * w + 16 * warp_of_group() + lane() / 4;
  ptx::Ring<Shared<Element, kRows>::kStages> ring;
  std::uint32_t query_parity = 0;
  for_each_group(groups, share, [&](const Group& group, int tile, int end) {
    const Destination to{.scores = p.scores + (group.first_token - p.first_token) * p.scores_stride,
                         .stride = p.scores_stride,
                         .num_tokens = group.num_tokens,
                         .keys = group.keys,
                         .rows_of_token = rows_of_token(p.num_heads)};
    ptx::mbarrier_wait(shared.q_full, query_parity);
    query_parity ^= 1;
    for (; tile < end; ++tile) {
      const std::uint64_t keys = k + static_cast<std::uint32_t>(ring.stage) * kStageStep;
      const int key = tile * kKeys + first_key;
      ptx::mbarrier_wait(shared.k_full[ring.stage], ring.parity);
      // What threads have copied is still to be shown to the products.
      ptx::fence_proxy_async();
      ptx::wgmma_fence();
      float a[Columns / 2];
      issue<Element, kRows, Columns>(a, keys, q);
      if constexpr (Halves == 1) {
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(a);
        ptx::mbarrier_arrive_warp(shared.k_empty[ring.stage]);
        finish<Columns>(a, shared.weights, 0, key, to);
      } else {
        float b[Columns / 2];
        issue<Element, kRows, Columns>(b, keys, q + kHalfStep);
        ptx::wgmma_wait<1>();
        ptx::wgmma_pin(a);
        finish<Columns>(a, shared.weights, 0, key, to);
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(b);
        ptx::mbarrier_arrive_warp(shared.k_empty[ring.stage]);
        finish<Columns>(b, shared.weights, Columns, key, to);
      }
      ring.advance();
    }
    ptx::mbarrier_arrive_warp(shared.q_empty);
  });
}

template <class Element, int Columns, int Halves>
__global__ void __launch_bounds__(kThreads, 1)
    index_scores(const __grid_constant__ CUtensorMap q_map,
                 const __grid_constant__ CUtensorMap k_map,
                 const __grid_constant__ sm80::Params params, const Group* groups,
                 const Share* shares) {
  auto& shared = *reinterpret_cast<Shared<Element, Columns * Halves>*>(ptx::dynamic_shared<1024>());
  const int warpgroup = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(shared.q_full, 1 + kProducers - 32);
    ptx::mbarrier_init(shared.q_empty, kConsumers / 32);
    for (int stage = 0; stage < Shared<Element, Columns * Halves>::kStages; ++stage) {
      ptx::mbarrier_init(shared.k_full[stage], maps_keys(params.page_size) ? 1 : kProducers);
      ptx::mbarrier_init(shared.k_empty[stage], kConsumers / 32);
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch(q_map);
    if (maps_keys(params.page_size)) ptx::tma_prefetch(k_map);
  }
  __syncthreads();
  ptx::dependency_release();
  const Share share = shares[blockIdx.x];
  ptx::dependency_wait();
  if (warpgroup >= kConsumers / 128) {
    ptx::registers_give<kOfProducer>();
    produce(shared, params, q_map, k_map, groups, share);
  } else {
    ptx::registers_take<kOfConsumer>();
    consume<Element, Columns, Halves>(shared, params, groups, share, warpgroup);
  }
}

}  // namespace attune::kernels::index_scores::sm90
