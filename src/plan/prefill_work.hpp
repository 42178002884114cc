// Prefill work for a GPU (layer plan): blocks of rows, cut along their keys where there are too few
// to fill the card; the costliest first.
#pragma once

#include <cstdint>
#include <vector>

#include <attune/batch.hpp>

#include "attention/mask.hpp"
#include "attention/prefill_list.hpp"
#include "plan/cascade.hpp"

namespace attune::plan {

struct PrefillShape {
  std::int32_t num_kv_heads = 1;
  std::int32_t gqa_group_size = 1;
  std::int32_t rows = 64;  ///< of a block
  std::int32_t key_tile = 64;
  std::int32_t workers = 1;    ///< CTAs
  std::int32_t max_parts = 0;  ///< places in the workspace, in items
  bool decodes_too = false;    ///< take requests of one query token as well
};

struct PrefillList {
  std::vector<attention::PrefillItem> items;
  attention::PrefillWork work;
};

/// The most items that batches within bounds make.
[[nodiscard]] std::int64_t max_prefill_items(const PrefillShape& shape, const BatchBounds& bounds);

/// `rule` is without the causal bound where custom masks replace it. Keys of a cascade's levels are
/// left out.
void list_prefill_work(const BatchView& batch, const attention::MaskRule& rule,
                       const PrefillShape& shape, const Cascade& cascade, PrefillList& list);

}  // namespace attune::plan
