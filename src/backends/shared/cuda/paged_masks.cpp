#include "backends/shared/cuda/paged_masks.hpp"

#include <algorithm>

#include "attention/block_table.hpp"
#include "base/join.hpp"
#include "base/math.hpp"

namespace attune::backends::shared::paged {
namespace {

/// Of a mask by heads, blocks that have bits (64 MB), or what a mask of all heads might bring.
constexpr std::int64_t kMostMixedByHeads = 32768;

Status write_blocks(const BlockMaskView& mask, bool fresh, PagedPlan& plan) {
  const Sizes& n = plan.sizes;
  const auto blocks = static_cast<std::int64_t>(mask.blocks.size());
  const auto mixed = static_cast<std::int64_t>(mask.bits.size()) / kMaskBlockBytes;
  if (fresh && mixed > n.mixed_blocks)
    return unsupported(base::join("a mask by heads may have ", n.mixed_blocks,
                                  " blocks here that are neither hidden nor whole, this one has ",
                                  mixed, ": mask fewer requests a step, or all heads alike"));
  if (blocks > n.blocks || mixed > n.mixed_blocks)
    return invalid_argument(base::join("the plan has room for ", n.blocks, " blocks of a mask, ",
                                       n.mixed_blocks, " of them with bits, the batch's has ",
                                       blocks, " and ", mixed, ": plan for a larger batch"));
  if (!fresh && mask.num_heads != plan.block_heads)
    return invalid_argument(base::join("the plan's mask is of ", plan.block_heads,
                                       " heads, the batch's of ", mask.num_heads,
                                       ": make a new plan"));
  plan.block_heads = mask.num_heads;
  plan.blocks.cover(plan.parts.blocks, plan.parts.blocks + blocks);
  plan.blocks.put(plan.parts.blocks, mask.blocks);
  plan.block_bits.cover(plan.parts.block_bits, plan.parts.block_bits + mixed * kMaskBlockBytes);
  plan.block_bits.put(plan.parts.block_bits, mask.bits);
  return {};
}

}  // namespace

void size_masks(const AttentionSpec& spec, const BatchBounds& bounds, Sizes& n) {
  if (spec.custom_mask)
    n.mask_bytes = bounds.max_qo_tokens * base::ceil_div<std::int64_t>(bounds.max_kv_len, 8) +
                   bounds.max_batch * 8;
  if (!spec.block_mask) return;
  const std::int64_t rows =
      std::min(bounds.max_qo_tokens, bounds.max_qo_tokens / kMaskBlock + bounds.max_batch);
  const std::int64_t of_one_head = rows * attention::BlockTable::columns(bounds.max_kv_len);
  n.blocks = of_one_head * spec.num_qo_heads;
  n.mixed_blocks = std::min(n.blocks, std::max(of_one_head, kMostMixedByHeads));
}

Status write_masks(const BatchView& batch, bool fresh, PagedPlan& plan) {
  const auto bytes = static_cast<std::int64_t>(batch.custom_mask.size());
  if (bytes > plan.sizes.mask_bytes)
    return invalid_argument(base::join("the plan has room for ", plan.sizes.mask_bytes,
                                       " bytes of custom_mask, the batch has ", bytes,
                                       ": plan for a larger batch"));
  return batch.block_mask.given() ? write_blocks(batch.block_mask, fresh, plan) : Status{};
}

}  // namespace attune::backends::shared::paged
