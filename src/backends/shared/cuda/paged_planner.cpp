#include "backends/shared/cuda/paged_planner.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>

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

// What a level costs, in bytes that the card could read meanwhile (docs/performance/cascade.md): a
// key read again by the next request, which finds some in the second-level cache; a number of a
// product (two operations) in the general kernel and in the Hopper kernel; a number of a state
// written and joined; having levels at all, which is the launches and the ends of two kernels more.
constexpr double kReadAgain = 0.76;
constexpr double kProductBytes = 2.0 * 4.2 / 220.0;
constexpr double kTileProductBytes = 2.0 * 4.2 / 650.0;
constexpr double kStateBytes = 8.0;
constexpr double kLevelBytes = 26e-6 * 4.2e12;

// Levels beside decodes on a Hopper card: a level's beginning and end, a tile of 128 rows and 128
// keys on one SM, bytes a second that decodes read on all SMs and on one of few.
constexpr double kLevelSeconds = 14e-6;
constexpr double kTileSeconds = 1.46e-6;
constexpr double kDecodeRate = 4.2e12;
constexpr double kDecodeRateOfSm = 34e9;
constexpr int kSmStep = 4;

// Tokens whose states the workspace has room for, and levels of all of them. Batches of more tokens
// are prefills, whose blocks are full without their neighbours' rows.
constexpr std::int64_t kCascadeTokens = 512;
constexpr std::int64_t kCascadeStates = 3;

/// Masks are for the kernel of several query tokens.
bool decodes_possible(const Setup& setup) {
  return !setup.spec.custom_mask && !setup.spec.block_mask;
}

plan::PrefillShape prefill_shape(const Setup& setup, const Sizes& sizes) {
  return {.num_kv_heads = setup.spec.num_kv_heads,
          .gqa_group_size = setup.spec.gqa_group_size(),
          .rows = setup.prefill->rows,
          .key_tile = setup.prefill->key_tile,
          .workers = setup.prefill_grid,
          .max_parts = sizes.prefill_parts,
          .decodes_too = !decodes_possible(setup)};
}

/// Of the Hopper kernel of levels on `workers` SMs.
plan::PrefillShape level_shape(const Setup& setup, int workers) {
  return {.num_kv_heads = setup.spec.num_kv_heads,
          .gqa_group_size = setup.spec.gqa_group_size(),
          .rows = setup.level->query_tile,
          .key_tile = setup.level->key_tile,
          .workers = workers};
}

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

/// A mask is laid out by request: rows of several requests cannot go through it together.
std::int64_t state_tokens(const Setup& setup, const BatchBounds& bounds) {
  if (setup.cascade == plan::CascadeMode::off || !decodes_possible(setup) || bounds.max_batch < 2)
    return 0;
  return std::min(bounds.max_qo_tokens, kCascadeTokens);
}

/// In bytes read from memory on the whole card (docs/performance/cascade.md). `tiled`: levels run
/// in the Hopper kernel.
plan::CascadeCosts cascade_costs(const Setup& setup, bool tiled) {
  const AttentionSpec& spec = setup.spec;
  const double dims = spec.head_dim_qk + spec.head_dim_vo;
  const double bytes = dims * static_cast<double>(size_of(spec.kv_dtype));
  const int block = tiled ? setup.level->query_tile : setup.prefill->rows;
  const double product = tiled ? kTileProductBytes : kProductBytes;
  return {.decode_read = bytes * kReadAgain,
          .decode_row = 0.0,
          .block_read = std::max(bytes, block * dims * product),
          .block_row = 0.0,
          .merge_row = spec.head_dim_vo * kStateBytes,
          .rows_a_token = spec.gqa_group_size(),
          .block_rows = block,
          .decodes = decodes_possible(setup),
          .units = spec.num_kv_heads,
          .workers = tiled ? setup.num_sms : setup.prefill_grid,
          .least_keys = 4 * std::int64_t{setup.prefill->key_tile},
          .any_level = kLevelBytes / spec.num_kv_heads};
}

}  // namespace

Sizes sizes_of(const Setup& setup, const BatchBounds& bounds) {
  Sizes n;
  // 8-bit keys: two heads a CTA where that still leaves every CTA several rows, for fewer, longer
  // items. Chosen from the batch alone, so a refreshed plan keeps it.
  const int rows_per_cta = static_cast<int>(bounds.max_batch * heads_of(setup) / setup.decode_grid);
  n.shape =
      plan::decode_shape(setup.spec.num_kv_heads, setup.spec.gqa_group_size(), setup.decode->rows,
                         size_of(setup.spec.kv_dtype) == 1 && rows_per_cta >= 6 ? 2 : 1);
  if (decodes_possible(setup)) {
    n.decode_parts = std::max(2, kPartsPerCta * setup.decode_grid / heads_of(setup));
    n.max_chunks = static_cast<std::int32_t>(bounds.max_batch) + n.decode_parts +
                   ceil_div(2 * setup.decode_grid, n.shape.units) + 1;
    n.mails = setup.mails && n.shape.heads_per_cta == 1 &&
              bounds.max_batch < setup.decode_grid / n.shape.units;
    n.plan_rows = kernels::decode_plan::sm80::rows_wanted(bounds.max_batch);
  }
  if (!bounds.decode_only || !decodes_possible(setup)) {
    n.prefill_parts = std::max(2, 2 * setup.prefill_grid / setup.spec.num_kv_heads);
    n.max_items = plan::max_prefill_items(prefill_shape(setup, n), bounds);
    if (const hopper::Tiler* tiler = setup.prefill_kernels.tiler()) {
      n.max_tiles = tiler->max_tiles(bounds.max_batch, bounds.max_qo_tokens);
      n.max_rows = tiler->max_rows(bounds);
      n.row_bytes = tiler->row_bytes();
    }
  }
  n.state_tokens = state_tokens(setup, bounds);
  if (n.state_tokens > 0) {
    const std::int64_t levels = kCascadeStates * n.state_tokens;
    // Each worker's part of a level has the states of a block of its own.
    n.state_rows = n.state_tokens + levels +
                   ceil_div(setup.prefill_grid * setup.prefill->rows, setup.spec.num_qo_heads);
    n.max_items += plan::max_level_items(prefill_shape(setup, n), levels, bounds.max_batch);
    if (setup.level)
      n.max_level_tiles =
          setup.spec.num_kv_heads *
          plan::max_level_items(level_shape(setup, setup.num_sms), levels, bounds.max_batch);
  }
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
      setup.mails && decodes_possible(setup)
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

/// The levels worth taking; the plan's token rules are filled where there are groups at all.
plan::Cascade find_cascade(const Setup& setup, const BatchView& batch, const Sizes& n,
                           std::vector<attention::TokenRule>& rules) {
  if (batch.prefix_groups.empty() || batch.source != KvSource::paged ||
      batch.num_qo_tokens() > n.state_tokens)
    return {};
  plan::list_token_rules(batch, setup.rule, setup.spec.xai_temperature_len, rules);
  std::vector<attention::KeyRange> visible;
  visible.reserve(rules.size());
  for (const attention::TokenRule& rule : rules) visible.push_back({rule.begin, rule.end});
  const auto find = [&](bool tiled) {
    return plan::find_levels(batch, visible, cascade_costs(setup, tiled), setup.cascade,
                             kCascadeStates * n.state_tokens * setup.spec.num_qo_heads);
  };
  plan::Cascade found = find(setup.level.has_value());
  if (setup.level && !plan::levels_are_open(found, rules)) found = find(false);
  // Sizes count on it; only hints of single requests make more.
  if (static_cast<std::int64_t>(found.levels.size()) > batch.batch_size()) return {};
  return found;
}

/// The SMs that levels get while decodes run on the others, to be joined by these; all of them
/// where other kernels come in between.
int level_sms(const Setup& setup, const BatchView& batch, const plan::Cascade& cascade) {
  const AttentionSpec& spec = setup.spec;
  double keys = 0.0;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    if (batch.qo_len(i) != 1) return setup.num_sms;
    keys += static_cast<double>(std::max<std::int64_t>(batch.kv_len(i) - cascade.own_begin(i), 0));
  }
  const double key_bytes = spec.num_kv_heads * (spec.head_dim_qk + spec.head_dim_vo) *
                           static_cast<double>(size_of(spec.kv_dtype));
  const double bytes = keys * key_bytes;
  double shared = 0.0;
  for (const plan::SharedLevel& level : cascade.levels)
    shared += static_cast<double>(level.keys.end - level.keys.begin);
  const double level_bytes = shared * key_bytes;
  int best = setup.num_sms;
  double least = std::numeric_limits<double>::infinity();
  for (int sms = setup.num_sms; sms > 0; sms -= kSmStep) {
    const double tiles =
        kTileSeconds * static_cast<double>(plan::level_time(cascade, level_shape(setup, sms)));
    const double levels = kLevelSeconds + std::max(tiles, level_bytes / kDecodeRate);
    const double meanwhile = std::min(kDecodeRateOfSm * (setup.num_sms - sms) * levels,
                                      kDecodeRate * levels - level_bytes);
    const double time = levels + std::max(bytes - meanwhile, 0.0) / kDecodeRate;
    if (time >= least) continue;
    least = time;
    best = sms;
  }
  return best;
}

/// Settles how a plan runs its levels.
void choose_grids(const Setup& setup, const BatchView& batch, const plan::Cascade& cascade,
                  PagedPlan& plan) {
  plan.cascades = !cascade.levels.empty();
  plan.tiled = plan.cascades && setup.level && plan::levels_are_open(cascade, plan.states.rules);
  plan.level_grid = plan.tiled && setup.overlap && setup.decode->beside != nullptr
                        ? level_sms(setup, batch, cascade)
                        : setup.num_sms;
  plan.beside = plan.tiled && plan.level_grid < setup.num_sms;
}

/// What a run with levels reads besides the work lists.
void list_cascade(const Setup& setup, const BatchView& batch, const plan::Cascade& cascade,
                  PagedPlan& plan) {
  const plan::PrefillShape shape =
      plan.tiled ? level_shape(setup, plan.level_grid) : prefill_shape(setup, plan.sizes);
  const std::vector<plan::LevelPlace> places =
      plan::place_levels(cascade, shape, batch.num_qo_tokens(), plan.sizes.state_rows);
  if (plan.tiled)
    plan::list_level_tiles(batch, cascade, places, shape, plan.level_tiles);
  else
    plan::list_level_work(batch, cascade, places, shape, plan.prefill);
  plan::list_states(batch, cascade, places, plan.states);
}

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
  if (decodes_possible(setup)) {
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
