// Rows of a block: whose they are, what they see, and the arithmetic of their softmax that all
// latent kernels share.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/mla_decode/params.hpp"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::mla_decode {

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.69314718f;
inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }

struct RowPlace {
  int token;  ///< of the request
  int head;
  bool exists;
};

__device__ __forceinline__ RowPlace place_of(const Params& params, int block, int row, int qo_len) {
  const int token_in_block = row / params.heads_per_block;
  RowPlace place;
  place.token = block / params.head_blocks * params.tokens_per_block + token_in_block;
  place.head = block % params.head_blocks * params.heads_per_block + row -
               token_in_block * params.heads_per_block;
  place.exists = token_in_block < params.tokens_per_block && place.token < qo_len &&
                 place.head < params.num_heads;
  return place;
}

/// Keys below this are visible to a token; 0 or less: none.
__device__ __forceinline__ int visible_keys(const Params& params, const attention::LatentItem& item,
                                            int token) {
  return params.causal != 0 ? min(item.kv_len, item.kv_len - item.qo_len + token + 1) : item.kv_len;
}

/// Keys below this are visible to every row of a block.
__device__ __forceinline__ int keys_of_all(const Params& params, const attention::LatentItem& item,
                                           int block) {
  return visible_keys(params, item, block / params.head_blocks * params.tokens_per_block);
}

/// What exponents are counted from: any number will do where nothing was visible.
__device__ __forceinline__ float finite(float maximum) {
  return maximum == -INFINITY ? 0.0f : maximum;
}

/// What a row's outputs are times in the end; `maximum` is in base 2. Of heads that do not exist there
/// is no sink to be read: any that does will do.
template <bool Sinks>
__device__ __forceinline__ float inverse_of(const Params& params, float maximum, float sum,
                                            int head) {
  if (maximum == -INFINITY) return 0.0f;
  if (Sinks && params.sinks != nullptr)
    sum += ptx::exp2_approx(params.sinks[head] * kLog2E - maximum);
  return params.v_scale / sum;
}

/// Where a key that is named by its slot begins, in elements from k.
__device__ __forceinline__ std::int64_t begin_of_slot(const Params& params, int slot) {
  return slot >= 0 ? slot * params.k_page_stride
                   : params.second_pool + ~slot * params.second_slot_stride;
}

/// Items of this thread block's group, and its lane in it.
struct Share {
  int lane;
  int begin;
  int end;
};

__device__ __forceinline__ Share share_of(const Params& params) {
  const int group = static_cast<int>(blockIdx.x) / params.lanes;
  return {static_cast<int>(blockIdx.x) - group * params.lanes, params.groups[group].begin,
          params.groups[group].end};
}

/// A planned item against the list as it is. A part keeps a tile at least, so that it leaves its
/// rows whatever they saw, and the last takes all that is left.
__device__ __forceinline__ void fit_to_list(const Params& params, int keys_of_tile,
                                            attention::LatentItem& item) {
  if (item.tile_begin >= item.tile_end) return;
  item.kv_len = params.lengths[item.q_token];
  const int tiles = (item.kv_len + keys_of_tile - 1) / keys_of_tile;
  item.tile_end = max(item.tile_begin + 1, item.last != 0 ? tiles : min(item.tile_end, tiles));
}

/// Item i of this thread block's group.
__device__ __forceinline__ const attention::LatentItem& item_of(const Params& params,
                                                                const Share& share, int i) {
  return i == share.begin ? params.groups[static_cast<int>(blockIdx.x) / params.lanes].first
                          : params.items[i];
}

}  // namespace attune::kernels::mla_decode
