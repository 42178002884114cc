#include "backends/shared/cuda/paged_planner.hpp"

#include <algorithm>
#include <iterator>
#include <span>

#include "backends/shared/cuda/paged_levels.hpp"
#include "backends/shared/cuda/paged_masks.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "device/cuda/memory.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared::paged {
namespace {

using attention::CutRule;
using base::ceil_div;
namespace sm90 = kernels::ragged_prefill::sm90;
static_assert(sizeof(attention::PrefillWork) == sizeof(sm90::WorkList));

// In bytes of keys and values (docs/performance/cuda-decode.md): a chunk that costs more than it
// balances; the share up to which each CTA gets one piece; the least such piece.
constexpr std::int64_t kLeastChunkBytes = 256 * 1024;
constexpr std::int64_t kLeastChunkBesideBytes = 512 * 1024;
constexpr std::int64_t kEvenShareBytes = 2 * 1024 * 1024;
constexpr std::int64_t kLeastEvenBytes = 32 * 1024;
// Places for parts, a CTA: cut lists need up to about a dozen.
constexpr std::int32_t kPartsPerCta = 16;

CutRule cut_rule(const Setup& setup, const Sizes& sizes, bool beside) {
  const std::int64_t least = beside ? kLeastChunkBesideBytes : kLeastChunkBytes;
  const std::int64_t tile_bytes = static_cast<std::int64_t>(setup.decode->tile) *
                                  (setup.spec.head_dim_qk + setup.spec.head_dim_vo) *
                                  static_cast<std::int64_t>(size_of(setup.spec.kv_dtype));
  return {.workers = setup.decode_grid,
          .units = sizes.shape.units,
          .max_chunks = sizes.max_chunks,
          .max_parts = sizes.decode_parts,
          .min_tiles = static_cast<std::int32_t>(ceil_div(least, tile_bytes)),
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

plan::PrefillShape prefill_shape(const Setup& setup, const Sizes& sizes) {
  return {.num_kv_heads = setup.spec.num_kv_heads,
          .gqa_group_size = setup.spec.gqa_group_size(),
          .rows = setup.prefill->rows,
          .key_tile = setup.prefill->key_tile,
          .workers = setup.prefill_grid,
          .max_parts = sizes.prefill_parts,
          .decodes_too = !setup.may_decode()};
}

Sizes sizes_of(const Setup& setup, const BatchBounds& bounds) {
  Sizes n;
  // 8-bit keys: two heads a CTA where that still leaves every CTA several rows, for fewer, longer
  // items. Chosen from the batch alone, so a refreshed plan keeps it.
  const int rows_per_cta = static_cast<int>(bounds.max_batch * heads_of(setup) / setup.decode_grid);
  n.shape =
      plan::decode_shape(setup.spec.num_kv_heads, setup.spec.gqa_group_size(), setup.decode->rows,
                         size_of(setup.spec.kv_dtype) == 1 && rows_per_cta >= 6 ? 2 : 1);
  if (setup.may_decode()) {
    n.decode_parts = std::max(2, kPartsPerCta * setup.decode_grid / heads_of(setup));
    n.max_chunks = static_cast<std::int32_t>(bounds.max_batch) + n.decode_parts +
                   ceil_div(2 * setup.decode_grid, n.shape.units) + 1;
    n.mails = setup.mails && n.shape.heads_per_cta == 1 &&
              bounds.max_batch < setup.decode_grid / n.shape.units;
    n.plan_rows = kernels::decode_plan::sm80::rows_wanted(bounds.max_batch);
  }
  if (!bounds.decode_only || !setup.may_decode()) {
    n.prefill_parts = std::max(2, 2 * setup.prefill_grid / setup.spec.num_kv_heads);
    n.max_items = plan::max_prefill_items(prefill_shape(setup, n), bounds);
    if (const hopper::Tiler* tiler = setup.prefill_kernels.tiler()) {
      n.max_tiles = tiler->max_tiles(bounds.max_batch, bounds.max_qo_tokens);
      n.max_rows = tiler->max_rows(bounds);
      n.row_bytes = tiler->row_bytes();
    }
  }
  size_levels(setup, bounds, n);
  size_masks(setup.spec, bounds, n);
  n.kv_entries = bounds.max_kv_entries;
  return n;
}

namespace {

Parts lay_out(const Setup& setup, const Sizes& n, plan::WorkspaceCutter& cut) {
  Parts parts;
  // First, and as large whatever the batch: plans that take turns in one workspace keep them in one
  // place. Who hands over has one head a CTA (sizes_of).
  parts.num_mail =
      setup.mails && setup.may_decode()
          ? std::int64_t{setup.decode_grid} * decode_rows(setup) * setup.decode->head_dim_vo / 4
          : 0;
  parts.decode_mail_o = cut.take<float4>(parts.num_mail);
  parts.decode_mail_state = cut.take<float2>(parts.num_mail);
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
  parts.state_o = cut.take<float>(n.state_rows * setup.spec.num_qo_heads * setup.spec.head_dim_vo);
  parts.state_lse = cut.take<float>(n.state_rows * setup.spec.num_qo_heads);
  parts.plan_rows = cut.take<kernels::decode_plan::sm80::Row>(n.plan_rows);
  parts.rows = cut.take<std::byte>(n.max_rows * n.row_bytes);
  parts.blocks = cut.take<std::int32_t>(n.blocks);
  parts.block_bits = cut.take<std::uint8_t>(n.mixed_blocks * kMaskBlockBytes);
  parts.rules = cut.take<attention::TokenRule>(n.state_tokens);
  parts.state_first = cut.take<std::int32_t>(n.state_tokens > 0 ? n.state_tokens + 1 : 0);
  parts.states = cut.take<std::int32_t>(n.state_rows);
  parts.level_work = cut.take<sm90::WorkList>(n.max_level_tiles > 0 ? 1 : 0);
  parts.level_items = cut.take<attention::PrefillTile>(n.max_level_tiles);
  parts.prefill_work = cut.take<attention::PrefillWork>(1);
  parts.tile_work = reinterpret_cast<sm90::WorkList*>(parts.prefill_work);
  parts.num_rows = cut.take<std::uint32_t>(1);
  auto* items = cut.take<std::byte>(
      std::max(n.max_items * static_cast<std::int64_t>(sizeof(attention::PrefillItem)),
               n.max_tiles * static_cast<std::int64_t>(sizeof(attention::PrefillTile))));
  parts.items = reinterpret_cast<attention::PrefillItem*>(items);
  parts.tiles = reinterpret_cast<attention::PrefillTile*>(items);
  parts.decode_work = cut.take<attention::DecodeWork>(1);
  parts.chunks = cut.take<attention::DecodeChunk>(n.max_chunks);
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

namespace {

/// What stands in front of a plan's tiles.
struct TileHeader {
  sm90::WorkList list;
  std::uint32_t num_rows = 0;
};

/// The rows of requests with several query tokens, as tiles or as blocks.
Status list_prefill(const Setup& setup, const BatchView& batch, const plan::Cascade& cascade,
                    bool fresh, PagedPlan& plan, TileHeader& header) {
  plan.prefill.items.clear();
  plan.prefill.work = {};
  plan.schedule.tiles.clear();
  if (fresh && plan.sizes.max_items > 0)
    plan.prefill_choice = setup.prefill_kernels.choose(batch, plan.cascades);
  if (plan.prefill_choice.tiled) {
    const hopper::Tiler& tiler = *setup.prefill_kernels.tiler();
    const std::int64_t rows = plan.prefill_choice.tiles.copies_first ? tiler.rows_of(batch) : 0;
    if (rows > plan.sizes.max_rows)
      return invalid_argument(base::join("the plan has room for ", plan.sizes.max_rows,
                                         " rows of keys and values, the batch has ", rows,
                                         ": make a new plan"));
    header.num_rows = static_cast<std::uint32_t>(rows);
    header.list = tiler.schedule(plan.prefill_choice.tiles, batch, plan.schedule);
  } else if (plan.sizes.max_items > 0) {
    plan::list_prefill_work(batch, setup.rule, prefill_shape(setup, plan.sizes), cascade,
                            plan.prefill);
  }
  return {};
}

/// From the first list that this plan's launches read.
void write_image(const BatchView& batch, const TileHeader& header, PagedPlan& plan) {
  const bool prefills = !plan.prefill.items.empty() || !plan.schedule.tiles.empty();
  void* begin = plan.parts.decode_work;
  if (prefills) begin = plan.parts.prefill_work;
  if (plan.cascades) begin = plan.parts.rules;
  plan.image.cover(begin, plan.parts.kv_indices + batch.kv_indices.size());
  if (plan.cascades) {
    plan.image.put(plan.parts.rules, plan.states.rules);
    plan.image.put(plan.parts.state_first, plan.states.first);
    plan.image.put(plan.parts.states, plan.states.rows);
  }
  if (plan.tiled) {
    // These name their heads.
    const auto items = static_cast<std::uint32_t>(plan.level_tiles.size());
    plan.image.put_one(plan.parts.level_work, {.num_items = items, .num_listed = items});
    plan.image.put(plan.parts.level_items, plan.level_tiles);
  }
  if (plan.prefill_choice.tiled && begin != plan.parts.decode_work) {
    plan.image.put_one(plan.parts.tile_work, header.list);
    plan.image.put_one(plan.parts.num_rows, header.num_rows);
    plan.image.put(plan.parts.tiles, plan.schedule.tiles);
  } else if (begin != plan.parts.decode_work) {
    plan.image.put_one(plan.parts.prefill_work, plan.prefill.work);
    plan.image.put(plan.parts.items, plan.prefill.items);
  }
  plan.image.put_one(plan.parts.decode_work, plan.decode.work);
  plan.image.put(
      plan.parts.chunks,
      std::span(plan.decode.chunks).first(static_cast<std::size_t>(plan.decode.work.num_chunks)));
  plan.image.put(plan.parts.mask, batch.custom_mask);
  plan.image.put(plan.parts.kv_indices, batch.kv_indices);
}

}  // namespace

Status make_lists(const Setup& setup, const BatchView& batch, bool fresh, PagedPlan& plan) {
  const Sizes& n = plan.sizes;
  const auto entries = static_cast<std::int64_t>(batch.kv_indices.size());
  if (entries > n.kv_entries)
    return invalid_argument(base::join("the plan has room for ", n.kv_entries,
                                       " entries of kv_indices, the batch has ", entries,
                                       ": plan for a larger batch"));
  if (Status bad = write_masks(batch, fresh, plan); !bad.ok()) return bad;

  plan::Cascade cascade;
  if (n.state_tokens > 0) cascade = find_cascade(setup, batch, n, plan.states.rules);
  if (fresh)
    choose_grids(setup, batch, cascade, plan);
  else if (!plan.cascades && !cascade.levels.empty())
    return invalid_argument(
        "requests have come to share a prefix that is worth a level: make a new plan");
  else if (plan.tiled && !plan::levels_are_open(cascade, plan.states.rules))
    cascade = {};

  plan.decode.work = {};
  if (setup.may_decode()) {
    const CutRule rule = cut_rule(setup, n, plan.beside);
    plan::list_decode_work(
        batch, {.mask = setup.rule, .xai_temperature_len = setup.spec.xai_temperature_len}, rule,
        setup.decode->tile, cascade, plan.decode);
  }
  TileHeader header;
  if (Status bad = list_prefill(setup, batch, cascade, fresh, plan, header); !bad.ok()) return bad;
  if (plan.cascades) list_cascade(setup, batch, cascade, plan);
  if (static_cast<std::int64_t>(plan.prefill.items.size()) > n.max_items ||
      static_cast<std::int64_t>(plan.schedule.tiles.size()) > n.max_tiles ||
      plan.decode.work.num_chunks > n.max_chunks)
    return invalid_argument(
        "the plan has too few work items for this batch: plan for a larger one");

  write_image(batch, header, plan);
  return {};
}

Status list_on_device(const Setup& setup, std::int64_t num_requests, const DeviceTables& tables,
                      PagedPlan& plan, Stream stream) {
  plan.tables = tables;
  return kernels::decode_plan::sm80::launch(
      {.kv_indptr = tables.kv_indptr,
       .kv_last_page_len = tables.kv_last_page_len,
       .num_requests = static_cast<std::int32_t>(num_requests),
       .page_size = setup.page_size,
       .max_kv_entries = tables.max_kv_entries,
       .max_kv_len = tables.max_kv_len,
       .mask = setup.rule,
       .rule = cut_rule(setup, plan.sizes, false),
       .tile = base::FastDivisor(static_cast<std::uint32_t>(setup.decode->tile)),
       .work = plan.parts.decode_work,
       .chunks = plan.parts.chunks,
       .rows = plan.parts.plan_rows},
      device::cuda::native(stream));
}

}  // namespace attune::backends::shared::paged
