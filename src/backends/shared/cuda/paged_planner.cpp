#include "backends/shared/cuda/paged_planner.hpp"

#include <algorithm>
#include <cstring>

#include "base/join.hpp"
#include "base/math.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared::paged {
namespace {

using attention::CutRule;
using base::ceil_div;

// In bytes of keys and values (docs/performance/cuda-decode.md): a chunk that costs more than it
// balances; the share up to which each CTA gets one piece; the least such piece.
constexpr std::int64_t kLeastChunkBytes = 256 * 1024;
constexpr std::int64_t kEvenShareBytes = 2 * 1024 * 1024;
constexpr std::int64_t kLeastEvenBytes = 32 * 1024;
// Places for parts, a CTA: cut lists need up to about a dozen.
constexpr std::int32_t kPartsPerCta = 16;

bool decodes_possible(const Setup& setup) { return !setup.spec.custom_mask; }

plan::PrefillShape prefill_shape(const Setup& setup, const Sizes& sizes) {
  return {.num_kv_heads = setup.spec.num_kv_heads,
          .gqa_group_size = setup.spec.gqa_group_size(),
          .rows = setup.prefill->rows,
          .key_tile = setup.prefill->key_tile,
          .workers = setup.prefill_grid,
          .max_parts = sizes.prefill_parts,
          .decodes_too = !decodes_possible(setup)};
}

CutRule cut_rule(const Setup& setup, const Sizes& sizes) {
  const std::int64_t tile_bytes = static_cast<std::int64_t>(setup.decode->tile) *
                                  (setup.spec.head_dim_qk + setup.spec.head_dim_vo) *
                                  static_cast<std::int64_t>(size_of(setup.spec.kv_dtype));
  return {.workers = setup.decode_grid,
          .units = sizes.shape.units,
          .max_chunks = sizes.max_chunks,
          .max_parts = sizes.decode_parts,
          .min_tiles = static_cast<std::int32_t>(ceil_div(kLeastChunkBytes, tile_bytes)),
          .even_tiles = static_cast<std::int32_t>(kEvenShareBytes / tile_bytes),
          .least_even_tiles = static_cast<std::int32_t>(ceil_div(kLeastEvenBytes, tile_bytes))};
}

int heads_of(const Setup& setup) {
  return setup.spec.num_kv_heads * ceil_div(setup.spec.gqa_group_size(), setup.decode->rows);
}

int decode_rows(const Setup& setup) {
  return std::min(setup.decode->rows, setup.spec.gqa_group_size());
}

}  // namespace

Sizes sizes_of(const Setup& setup, const BatchBounds& bounds) {
  Sizes n;
  // Two heads a CTA where that still leaves every CTA several rows: fewer, longer items. Chosen
  // from the batch alone, so a refreshed plan keeps it.
  const int rows_per_cta = static_cast<int>(bounds.max_batch * heads_of(setup) / setup.decode_grid);
  n.shape = plan::decode_shape(setup.spec.num_kv_heads, setup.spec.gqa_group_size(),
                               setup.decode->rows, rows_per_cta >= 6 ? 2 : 1);
  if (decodes_possible(setup)) {
    n.decode_parts = std::max(2, kPartsPerCta * setup.decode_grid / heads_of(setup));
    n.max_chunks = static_cast<std::int32_t>(bounds.max_batch) + n.decode_parts +
                   ceil_div(setup.decode_grid, n.shape.units);
  }
  if (!bounds.decode_only || !decodes_possible(setup)) {
    n.prefill_parts = std::max(2, 2 * setup.prefill_grid / setup.spec.num_kv_heads);
    n.max_items = plan::max_prefill_items(prefill_shape(setup, n), bounds);
  }
  if (setup.spec.custom_mask)
    n.mask_bytes =
        bounds.max_qo_tokens * ceil_div<std::int64_t>(bounds.max_kv_len, 8) + bounds.max_batch * 8;
  n.kv_entries = bounds.max_kv_entries;
  return n;
}

namespace {

Parts lay_out(const Setup& setup, const Sizes& n, plan::WorkspaceCutter& cut) {
  Parts parts;
  const std::int64_t decode_places = static_cast<std::int64_t>(n.decode_parts) * n.shape.units;
  const std::int64_t decode_part_rows = decode_places * n.shape.heads_per_cta * decode_rows(setup);
  const std::int64_t prefill_places =
      static_cast<std::int64_t>(n.prefill_parts) * setup.spec.num_kv_heads;
  const std::int64_t prefill_part_rows = prefill_places * setup.prefill->rows;
  parts.num_counters = 1 + decode_places + prefill_places;
  parts.counters = cut.take<std::int32_t>(parts.num_counters);
  if (parts.counters != nullptr) parts.prefill_arrivals = parts.counters + 1 + decode_places;
  parts.decode_o = cut.take<float>(decode_part_rows * setup.decode->head_dim_vo);
  parts.decode_state = cut.take<float2>(decode_part_rows);
  parts.prefill_o = cut.take<float>(prefill_part_rows * setup.prefill->head_dim_vo);
  parts.prefill_state = cut.take<float2>(prefill_part_rows);
  parts.decode_work = cut.take<attention::DecodeWork>(1);
  parts.chunks = cut.take<attention::DecodeChunk>(n.max_chunks);
  parts.prefill_work = cut.take<attention::PrefillWork>(1);
  parts.items = cut.take<attention::PrefillItem>(n.max_items);
  parts.mask = cut.take<std::uint8_t>(n.mask_bytes);
  parts.kv_indices = cut.take<std::int32_t>(n.kv_entries);
  return parts;
}

}  // namespace

Parts parts_of(const Setup& setup, const Sizes& sizes, void* memory) {
  plan::WorkspaceCutter cut(memory);
  return lay_out(setup, sizes, cut);
}

std::size_t workspace_bytes(const Setup& setup, const Sizes& sizes) {
  plan::WorkspaceCutter count;
  (void)lay_out(setup, sizes, count);
  return count.bytes();
}

Status make_lists(const Setup& setup, const BatchView& batch, PagedPlan& plan) {
  const Sizes& n = plan.sizes;
  const auto entries = static_cast<std::int64_t>(batch.kv_indices.size());
  if (entries > n.kv_entries)
    return invalid_argument(base::join("the plan has room for ", n.kv_entries,
                                       " entries of kv_indices, the batch has ", entries,
                                       ": plan for a larger batch"));
  if (static_cast<std::int64_t>(batch.custom_mask.size()) > n.mask_bytes)
    return invalid_argument(base::join("the plan has room for ", n.mask_bytes,
                                       " bytes of custom_mask, the batch has ",
                                       batch.custom_mask.size(), ": plan for a larger batch"));

  plan.decode.work = {};
  if (decodes_possible(setup)) {
    const CutRule rule = cut_rule(setup, n);
    plan::list_decode_work(
        batch, {.mask = setup.rule, .xai_temperature_len = setup.spec.xai_temperature_len}, rule,
        setup.decode->tile, plan.decode);
  }
  plan.prefill.items.clear();
  plan.prefill.work = {};
  if (n.max_items > 0)
    plan::list_prefill_work(batch, setup.rule, prefill_shape(setup, n), plan.prefill);
  if (static_cast<std::int64_t>(plan.prefill.items.size()) > n.max_items ||
      plan.decode.work.num_chunks > n.max_chunks)
    return invalid_argument(
        "the plan has too few work items for this batch: plan for a larger one");

  // The host image of everything from decode_work on.
  const auto* base = reinterpret_cast<const std::byte*>(plan.parts.decode_work);
  const auto offset = [&](const void* part) {
    return static_cast<std::size_t>(static_cast<const std::byte*>(part) - base);
  };
  const std::size_t bytes =
      offset(plan.parts.kv_indices) + static_cast<std::size_t>(entries) * sizeof(std::int32_t);
  plan.image.resize(bytes);
  const auto put = [&](const void* part, const void* from, std::size_t size) {
    if (size > 0) std::memcpy(plan.image.data() + offset(part), from, size);
  };
  put(plan.parts.decode_work, &plan.decode.work, sizeof(plan.decode.work));
  put(plan.parts.chunks, plan.decode.chunks.data(),
      static_cast<std::size_t>(plan.decode.work.num_chunks) * sizeof(attention::DecodeChunk));
  put(plan.parts.prefill_work, &plan.prefill.work, sizeof(plan.prefill.work));
  put(plan.parts.items, plan.prefill.items.data(),
      plan.prefill.items.size() * sizeof(attention::PrefillItem));
  put(plan.parts.mask, batch.custom_mask.data(), batch.custom_mask.size());
  put(plan.parts.kv_indices, batch.kv_indices.data(),
      static_cast<std::size_t>(entries) * sizeof(std::int32_t));
  return {};
}

}  // namespace attune::backends::shared::paged
