// What the Hopper prefill kernels receive (layer kernels): plain structs that the planner fills on
// the host and the kernel reads on the device.
#pragma once

#include <cstdint>

#include "attention/prefill_list.hpp"
#include "base/fast_divisor.hpp"

namespace attune::kernels::ragged_prefill::sm90 {

/// A tile is `rows >> pack_shift` tokens of `1 << pack_shift` neighbouring heads; its key tiles are
/// walked backwards.
using attention::PrefillTile;

/// KvLoad::blocks: a key tile that rows of a work item keep, in the place of all tiles of a range.
struct KeptTile {
  std::int32_t tile = 0;
  std::uint32_t tokens = 0;  ///< of the item, those that keep it: a bit each
};
static_assert(sizeof(KeptTile) == 8, "one vector load");

/// On the device, so that a captured launch meets the numbers of the newest plan. A launch finds
/// `next` and `finished` 0 and leaves them 0. Every head has the listed items once: item n of all
/// is found by group of heads, then listed item, then head within the group.
struct WorkList {
  std::uint32_t next = 0;
  std::uint32_t finished = 0;
  std::uint32_t num_items = 0;  ///< over all heads
  std::uint32_t num_listed = 0;
  std::uint32_t heads_together = 1;  ///< tiles of heads a group; the last group may have fewer
  std::uint32_t unused[3] = {0, 0, 0};
};

/// Strides count elements.
struct Params {
  void* o = nullptr;  ///< of q's type; Output::states: fp32
  std::int64_t o_token_stride = 0;
  std::int64_t o_head_stride = 0;
  float* lse = nullptr;  ///< optional, natural log
  std::int64_t lse_token_stride = 0;
  std::int64_t lse_head_stride = 0;

  WorkList* list = nullptr;
  const PrefillTile* items = nullptr;  ///< [list->num_listed], longest first

  /// KvLoad::blocks: [num_listed, tiles of heads, kept_stride], ascending, and how many, never none.
  const KeptTile* kept = nullptr;
  const std::int32_t* num_kept = nullptr;
  std::int32_t kept_stride = 0;

  const std::int32_t* kv_indices = nullptr;  ///< page ids; nullptr = ragged
  base::FastDivisor page;                    ///< tokens of a page
  std::int32_t box_rows = 0;                 ///< keys one TMA box brings; divides the page size
  const void* k = nullptr;                   ///< for the gather
  const void* v = nullptr;
  std::int64_t k_page_stride = 0;
  std::int64_t k_token_stride = 0;
  std::int64_t k_head_stride = 0;
  std::int64_t v_page_stride = 0;
  std::int64_t v_token_stride = 0;
  std::int64_t v_head_stride = 0;

  std::int32_t group = 1;  ///< query heads a KV head
  std::int32_t pack_shift = 0;

  float scale = 0;     ///< of a raw product: sm_scale * q_scale * k_scale
  float soft_cap = 0;  ///< 0 = off
  float v_scale = 1;
  std::int32_t window_left = -1;   ///< -1 = unbounded
  std::int32_t window_right = -1;  ///< 0 = causal, -1 = unbounded
  const float* sinks = nullptr;    ///< [num_qo_heads], logits
};

}  // namespace attune::kernels::ragged_prefill::sm90
