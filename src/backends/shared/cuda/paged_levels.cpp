#include "backends/shared/cuda/paged_levels.hpp"

#include <algorithm>
#include <limits>

#include "base/math.hpp"
#include "plan/level_work.hpp"

namespace attune::backends::shared::paged {
namespace {

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

/// Of the Hopper kernel of levels on `workers` SMs.
plan::PrefillShape level_shape(const Setup& setup, int workers) {
  return {.num_kv_heads = setup.spec.num_kv_heads,
          .gqa_group_size = setup.spec.gqa_group_size(),
          .rows = setup.level->query_tile,
          .key_tile = setup.level->key_tile,
          .workers = workers};
}

/// A mask is laid out by request: rows of several requests cannot go through it together.
std::int64_t state_tokens(const Setup& setup, const BatchBounds& bounds) {
  if (setup.cascade == plan::CascadeMode::off || !setup.may_decode() || bounds.max_batch < 2)
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
          .decodes = setup.may_decode(),
          .units = spec.num_kv_heads,
          .workers = tiled ? setup.num_sms : setup.prefill_grid,
          .least_keys = 4 * std::int64_t{setup.prefill->key_tile},
          .any_level = kLevelBytes / spec.num_kv_heads};
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

}  // namespace

void size_levels(const Setup& setup, const BatchBounds& bounds, Sizes& n) {
  n.state_tokens = state_tokens(setup, bounds);
  if (n.state_tokens == 0) return;
  const std::int64_t levels = kCascadeStates * n.state_tokens;
  // Each worker's part of a level has the states of a block of its own.
  n.state_rows = n.state_tokens + levels +
                 base::ceil_div(setup.prefill_grid * setup.prefill->rows, setup.spec.num_qo_heads);
  n.max_items += plan::max_level_items(prefill_shape(setup, n), levels, bounds.max_batch);
  if (setup.level)
    n.max_level_tiles =
        setup.spec.num_kv_heads *
        plan::max_level_items(level_shape(setup, setup.num_sms), levels, bounds.max_batch);
}

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

void choose_grids(const Setup& setup, const BatchView& batch, const plan::Cascade& cascade,
                  PagedPlan& plan) {
  plan.cascades = !cascade.levels.empty();
  plan.tiled = plan.cascades && setup.level && plan::levels_are_open(cascade, plan.states.rules);
  plan.level_grid = plan.tiled && setup.overlap && setup.decode->beside != nullptr
                        ? level_sms(setup, batch, cascade)
                        : setup.num_sms;
  plan.beside = plan.tiled && plan.level_grid < setup.num_sms;
}

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

}  // namespace attune::backends::shared::paged
