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

template <int Stages>
struct Ring {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void step() {
    if (++stage < Stages) return;
    stage = 0;
    parity ^= 1;
  }
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

/// 16 bytes of row `row`, from column 8 (chunk) on.
template <class Element, int Rows>
__device__ __forceinline__ void copy_chunk(Element (&panels)[kPanels][Rows * 64], int row,
                                           int chunk, const Element* from, bool valid) {
  ptx::cp_async_16(panels[chunk / 8] + row * 64 + (chunk % 8 ^ row % 8) * 8, from, valid);
}

template <class Element, int Rows>
__device__ __forceinline__ void copy_queries(Shared<Element, Rows>& shared, const sm80::Params& p,
                                             const Group& group, int rows_of_token) {
  const int thread = static_cast<int>(threadIdx.x) % kProducers;
  const int chunk = thread % 16;
  const auto* const q = static_cast<const Element*>(p.q);
#pragma unroll 8
  for (int row = thread / 16; row < Rows; row += kProducers / 16) {
    const int token = row / rows_of_token;
    const int head = row - token * rows_of_token;
    const bool valid = token < group.num_tokens && head < p.num_heads && 8 * chunk < p.head_dim;
    copy_chunk<Element, Rows>(shared.q, row, chunk,
                              q + (valid ? (group.first_token + token) * p.q_token_stride +
                                               head * p.q_head_stride + 8 * chunk
                                         : 0),
                              valid);
  }
  for (int row = thread; row < Rows; row += kProducers) {
    const int token = row / rows_of_token;
    const int head = row - token * rows_of_token;
    shared.weights[row] = token < group.num_tokens && head < p.num_heads
                              ? p.weights[(group.first_token + token) * p.weights_stride + head]
                              : 0.0f;
  }
  ptx::mbarrier_arrive(shared.q_full);  // the weights; the copies arrive by themselves
  ptx::cp_async_mbarrier_arrive(shared.q_full);
}

template <class Element, int Rows>
__device__ void produce(Shared<Element, Rows>& shared, const sm80::Params& p, const Group* groups,
                        const Share& share) {
  const int rows_of_token = sm90::rows_of_token(p.num_heads);
  const int chunk = lane() % 16;
  const int first_row = 2 * warp_of_group() + lane() / 16;
  const auto* const keys = static_cast<const Element*>(p.keys);
  const bool has_chunk = 8 * chunk < p.head_dim;
  KeyPlaces places(p);
  Ring<Shared<Element, Rows>::kStages> ring{.stage = 0, .parity = 1};
  std::uint32_t query_parity = 1;
  for_each_group(groups, share, [&](const Group& group, int tile, int end) {
    places.look_ahead(group, tile);
    ptx::mbarrier_wait(shared.q_empty, query_parity);
    query_parity ^= 1;
    copy_queries(shared, p, group, rows_of_token);
    for (; tile < end; ++tile, ring.step()) {
      places.advance();
      if (tile + 1 < end) places.look_ahead(group, tile + 1);
      ptx::mbarrier_wait(shared.k_empty[ring.stage], ring.parity);
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
        const std::int64_t offset = places.offset(i);
        const bool valid = offset >= 0 && has_chunk;
        copy_chunk<Element, kKeys>(shared.k[ring.stage], first_row + 8 * i, chunk,
                                   keys + (valid ? offset + 8 * chunk : 0), valid);
      }
      ptx::cp_async_mbarrier_arrive(shared.k_full[ring.stage]);
    }
  });
}

/// One arrival a warp.
__device__ __forceinline__ void release(ptx::Mbarrier& empty) {
  __syncwarp();
  if (lane() == 0) ptx::mbarrier_arrive(empty);
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
  int keys;  ///< of the last token
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
    const int visible = to.keys - to.num_tokens + 1 + token;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = sums[part][h];
      if (halves) sum += sums[part + 1 < kParts ? part + 1 : part][h];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      if (lane() % 4 == (2 * part + h) % 4 && token < to.num_tokens && key + 8 * h < visible)
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
  Ring<Shared<Element, kRows>::kStages> ring;
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
        release(shared.k_empty[ring.stage]);
        finish<Columns>(a, shared.weights, 0, key, to);
      } else {
        float b[Columns / 2];
        issue<Element, kRows, Columns>(b, keys, q + kHalfStep);
        ptx::wgmma_wait<1>();
        ptx::wgmma_pin(a);
        finish<Columns>(a, shared.weights, 0, key, to);
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(b);
        release(shared.k_empty[ring.stage]);
        finish<Columns>(b, shared.weights, Columns, key, to);
      }
      ring.step();
    }
    release(shared.q_empty);
  });
}

template <class Element, int Columns, int Halves>
__global__ void __launch_bounds__(kThreads, 1)
    index_scores(const __grid_constant__ sm80::Params params, const Group* groups,
                 const Share* shares) {
  auto& shared = *reinterpret_cast<Shared<Element, Columns * Halves>*>(ptx::dynamic_shared<1024>());
  const int warpgroup = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(shared.q_full, 2 * kProducers);
    ptx::mbarrier_init(shared.q_empty, kConsumers / 32);
    for (int stage = 0; stage < Shared<Element, Columns * Halves>::kStages; ++stage) {
      ptx::mbarrier_init(shared.k_full[stage], kProducers);
      ptx::mbarrier_init(shared.k_empty[stage], kConsumers / 32);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  ptx::dependency_release();
  const Share share = shares[blockIdx.x];
  ptx::dependency_wait();
  if (warpgroup >= kConsumers / 128) {
    ptx::registers_give<kOfProducer>();
    produce(shared, params, groups, share);
  } else {
    ptx::registers_take<kOfConsumer>();
    consume<Element, Columns, Halves>(shared, params, groups, share, warpgroup);
  }
}

}  // namespace attune::kernels::index_scores::sm90
