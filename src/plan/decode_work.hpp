// Decode work for a GPU (layer plan): which heads a CTA works on, and how requests are cut into the
// chunks of attention/work_list.hpp. O(batch + chunks), no allocation once the vectors have grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/batch.hpp>

#include "attention/mask.hpp"
#include "attention/work_list.hpp"
#include "plan/cascade.hpp"

namespace attune::plan {

/// How heads map onto CTAs.
struct DecodeShape {
  std::int32_t row_blocks = 1;  ///< parts a GQA group is cut into
  std::int32_t heads_per_cta = 1;
  std::int32_t units = 1;  ///< of heads_per_cta (KV head, row block) pairs
};

/// `heads_per_cta` is a wish: the largest power of two up to it that divides the heads.
[[nodiscard]] DecodeShape decode_shape(int num_kv_heads, int gqa_group_size, int rows_per_block,
                                       int heads_per_cta);

/// What the logits of a batch's decode rows need besides q and k.
struct DecodeRules {
  attention::MaskRule mask;
  std::int64_t xai_temperature_len = 0;
};

/// Host side of a decode plan. Reused from plan to plan, so that planning does not allocate.
struct DecodeList {
  std::vector<attention::DecodeRequest> requests;
  std::vector<attention::CutState> states;
  std::vector<attention::DecodeChunk> chunks;
  attention::DecodeWork work;
};

/// The requests with exactly one query token, cut by `rule` into tiles of `tile` tokens. Keys of a
/// cascade's levels are left out.
void list_decode_work(const BatchView& batch, const DecodeRules& rules,
                      const attention::CutRule& rule, std::int32_t tile, const Cascade& cascade,
                      DecodeList& list);

}  // namespace attune::plan
