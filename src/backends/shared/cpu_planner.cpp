#include "backends/shared/cpu_planner.hpp"

#include <algorithm>
#include <cmath>

#include "attention/dual_chunk.hpp"
#include "backends/shared/cpu_blocks.hpp"
#include "base/math.hpp"
#include "kernels/dense/scratch.hpp"
#include "kernels/paged_decode/policy.hpp"
#include "kernels/ragged_prefill/policy.hpp"
#include "plan/split_kv.hpp"
#include "plan/tile_schedule.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared {
namespace {

namespace dense = kernels::dense;
using attention::KeyRange;

/// Keys of a part where the neighbours may not matter.
constexpr std::int64_t kInvariantChunk = 4096;
static_assert(kPromptGranule % dense::kKeyTile == 0, "rows meet their keys in the same tiles");

plan::SplitPolicy split_policy(const Setup& setup) {
  plan::SplitPolicy policy{.granule = dense::kKeyTile};
  if (setup.batch_invariant)
    policy.fixed_chunk = kInvariantChunk;
  else if (setup.num_threads > 1)
    policy.target_parts = kPartsPerThread * setup.num_threads;
  return policy;
}

/// Tokens whose rows the workspace has room to keep apart by levels, and levels it has room for.
/// Batches of more tokens are prefills, whose blocks are full without their neighbours' rows.
constexpr std::int64_t kCascadeTokens = 512;
constexpr std::int64_t kCascadeStates = 4;

/// Queries that a head has, each with keys of its own.
int num_queries(const AttentionSpec& spec) {
  return spec.variant == Variant::dual_chunk ? kDualChunkQueries : 1;
}

/// Room for rows that meet keys of several chunks: each of a head's queries makes a state.
std::int64_t chunk_states(const Setup& setup, const BatchBounds& bounds) {
  const AttentionSpec& spec = setup.spec;
  const int queries = num_queries(spec);
  if (queries == 1 || bounds.max_kv_len <= spec.dual_chunk_len) return 0;
  return bounds.max_qo_tokens * spec.num_qo_heads * queries;
}

std::int64_t cascade_states(const Setup& setup, const BatchBounds& bounds) {
  if (setup.cascade == plan::CascadeMode::off || bounds.max_batch < 2) return 0;
  return std::min(bounds.max_qo_tokens, kCascadeTokens) * setup.spec.num_qo_heads * kCascadeStates;
}

/// Rows of the largest block that may be split.
std::int64_t max_split_rows(const Setup& setup, const BatchBounds& bounds) {
  const AttentionSpec& spec = setup.spec;
  const std::int64_t decoding =
      decodes(spec, 1) ? std::min<std::int64_t>(spec.num_qo_heads, kernels::paged_decode::kMaxRows)
                       : head_blocks(spec).heads;
  if (bounds.decode_only && cascade_states(setup, bounds) == 0) return decoding;
  return std::max(decoding, std::min<std::int64_t>(bounds.max_qo_tokens * spec.gqa_group_size(),
                                                   kernels::ragged_prefill::kMaxRows));
}

struct Sizes {
  int num_threads;
  std::int64_t scratch_bytes;
  std::int64_t partial_rows;    ///< split blocks', cascade_states and chunk_states
  std::int64_t cascade_states;  ///< one a row for each level and for its own keys
  std::int64_t head_dim_vo;
};

Sizes sizes(const Setup& setup, const BatchBounds& bounds) {
  if (bounds.max_qo_tokens == 0) return {};
  const AttentionSpec& spec = setup.spec;
  const std::int64_t states = cascade_states(setup, bounds);
  const bool prefills = !bounds.decode_only || !decodes(spec, 1) || states > 0;
  const bool decoding = decodes(spec, 1);
  const std::int64_t total_keys =
      std::min(bounds.max_kv_entries * bounds.page_size, bounds.max_batch * bounds.max_kv_len);
  const int queries = num_queries(spec);
  const std::int64_t parts =
      plan::max_split_parts(split_policy(setup), spec.num_kv_heads * head_blocks(spec).count,
                            bounds.max_batch * queries, bounds.max_kv_len, total_keys * queries);
  return {
      .num_threads = setup.num_threads,
      .scratch_bytes = std::max(prefills ? prefill_scratch(setup).bytes : 0,
                                decoding ? decode_scratch(setup).bytes : 0),
      .partial_rows = parts * max_split_rows(setup, bounds) + states + chunk_states(setup, bounds),
      .cascade_states = states,
      .head_dim_vo = spec.head_dim_vo};
}

Parts lay_out(plan::WorkspaceCutter& cut, const Sizes& n) {
  return {.scratch = cut.take<std::byte>(n.num_threads * n.scratch_bytes),
          .partial_o = cut.take<float>(n.partial_rows * n.head_dim_vo),
          .partial_lse = cut.take<float>(n.partial_rows)};
}

/// The keys of all tokens' first queries, then of all their second ones, and so on.
void list_chunks(const BatchView& batch, std::int64_t chunk_len, std::vector<KeyRange>& visible) {
  for (int query = 0; query < kDualChunkQueries; ++query)
    for (std::int64_t i = 0; i < batch.batch_size(); ++i)
      for (std::int64_t p = batch.kv_len(i) - batch.qo_len(i); p < batch.kv_len(i); ++p)
        visible.push_back(attention::dual_chunk_range(query, chunk_len, p));
}

/// Narrows what each query sees to the blocks of keys between the first and the last that its block
/// of queries does not hide.
void narrow_to_blocks(const BatchView& batch, CpuPlan& plan) {
  const attention::BlockTable mask = plan.block_mask();
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t kv_len = batch.kv_len(i);
    KeyRange seen;
    for (std::int64_t query = 0; query < batch.qo_len(i); ++query) {
      if (query % kMaskBlock == 0) {
        seen = {kv_len, 0};
        for (int head = 0; head < mask.num_heads; ++head) {
          const std::int32_t* const row = mask.row(i, head, query, kv_len);
          for (std::int64_t b = 0; b < mask.columns(kv_len); ++b) {
            if (row[b] == kHiddenBlock) continue;
            seen.begin = std::min(seen.begin, b * kMaskBlock);
            seen.end = std::max(seen.end, (b + 1) * kMaskBlock);
          }
        }
      }
      KeyRange& range = plan.visible[static_cast<std::size_t>(
          batch.qo_indptr[static_cast<std::size_t>(i)] + query)];
      range.begin = std::max(range.begin, seen.begin);
      range.end = std::max(range.begin, std::min(range.end, seen.end));
    }
  }
}

/// What each query token sees and where it stands.
void place_queries(const Setup& setup, const BatchView& batch, CpuPlan& plan) {
  const AttentionSpec& spec = setup.spec;
  const attention::MaskRule rule{.causal = spec.causal && !spec.custom_mask && !spec.block_mask,
                                 .window_left = spec.window_left,
                                 .window_right = spec.window_right,
                                 .attention_chunk = spec.attention_chunk};
  plan.visible.clear();
  if (num_queries(spec) > 1) list_chunks(batch, spec.dual_chunk_len, plan.visible);
  const bool by_rule = plan.visible.empty();
  plan.key_position.clear();
  plan.temperature.clear();
  plan.first_position.clear();
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t first = batch.first_kv_position(i);
    plan.first_position.push_back(first);
    const std::int64_t end = first + batch.kv_len(i);
    for (std::int64_t p = end - batch.qo_len(i); p < end; ++p) {
      KeyRange range = attention::visible_range(rule, p, first, end);
      if (setup.most_keys > 0 && range.end - range.begin > setup.most_keys) range = {first, first};
      if (by_rule) plan.visible.push_back({range.begin - first, range.end - first});
      plan.key_position.push_back(p - first);
      if (spec.xai_temperature_len > 0)
        plan.temperature.push_back(
            p > spec.xai_temperature_len
                ? static_cast<float>(std::log2(static_cast<double>(p)) /
                                     std::log2(static_cast<double>(spec.xai_temperature_len)))
                : 1.0f);
    }
  }
  if (spec.block_mask) narrow_to_blocks(batch, plan);
}

/// Turns blocks into items, and rows of several states into merges.
class ItemMaker {
 public:
  ItemMaker(const Setup& setup, const BatchView& batch, const plan::Cascade& cascade, CpuPlan& plan)
      : setup_(setup), batch_(batch), cascade_(cascade), plan_(plan) {}

  /// Returns the partial rows used.
  std::int64_t make() {
    std::vector<std::vector<Block>> shared;
    for (const plan::SharedLevel& level : cascade_.levels)
      shared.push_back(level_blocks(setup_, level, plan_.visible));
    // The same blocks of rows for each query of a head, against other keys.
    std::vector<std::vector<Block>> own;
    const auto tokens = static_cast<std::size_t>(batch_.num_qo_tokens());
    for (std::size_t first = 0; first < plan_.visible.size(); first += tokens)
      own.push_back(
          own_blocks(setup_, batch_, std::span(plan_.visible).subspan(first, tokens), cascade_));
    for (const auto* some : {&own, &shared})
      for (const auto& blocks : *some)
        for (const Block& block : blocks) {
          total_cost_ += block.cost;
          ++num_blocks_;
        }

    plan_.merges.clear();
    plan_.sources.clear();
    for (std::size_t i = 0; i < shared.size(); ++i) add_level(cascade_.levels[i], shared[i]);
    for (std::size_t i = 0; !own.empty() && i < own[0].size(); ++i) add_own(own, i);
    plan_.items.clear();
    for (const std::int32_t i : plan::costliest_first(costs_))
      plan_.items.push_back(items_[static_cast<std::size_t>(i)]);
    return partial_rows_;
  }

 private:
  void add_item(const Block& block, KeyRange keys, std::int64_t partial_row,
                std::int64_t partial_stride, double cost, int query = 0) {
    WorkItem work{.item = block.item, .decodes = block.decodes, .query = query};
    work.item.kv_begin = std::max(work.item.kv_begin, keys.begin);
    work.item.kv_end = std::max(std::min(work.item.kv_end, keys.end), work.item.kv_begin);
    work.item.partial_row = partial_row;
    work.item.partial_stride = partial_stride;
    items_.push_back(work);
    costs_.push_back(cost);
  }

  /// The states of a level lie together, [part][token][query head], whatever its blocks: a merge
  /// finds its rows without knowing them. So all blocks are cut alike.
  void add_level(const plan::SharedLevel& level, const std::vector<Block>& blocks) {
    KeyRange keys{INT64_MAX, 0};
    double cost = 0.0;
    for (const Block& block : blocks) {
      keys.begin = std::min(keys.begin, block.item.kv_begin);
      keys.end = std::max(keys.end, block.item.kv_end);
      cost += block.cost;
    }
    const plan::KvSplit split = plan::split_kv(
        split_policy(setup_), keys, cost / static_cast<double>(blocks.size()), total_cost_);
    const std::int64_t heads = setup_.spec.num_qo_heads;
    const kernels::merge_states::Source source{.first_row = partial_rows_,
                                               .token_stride = heads,
                                               .part_stride = level.num_tokens * heads,
                                               .num_parts = split.num_parts};
    for (const Block& block : blocks) {
      const std::int64_t row = source.first_row +
                               (block.item.first_token - level.first_token) * heads +
                               block.item.first_head;
      for (std::int64_t part = 0; part < split.num_parts; ++part)
        add_item(block, split.part(part), row + part * source.part_stride, heads,
                 block.cost / static_cast<double>(split.num_parts));
    }
    partial_rows_ += split.num_parts * source.part_stride;
    level_states_.push_back(source);
  }

  /// Block `index` of each of the queries: rows that meet keys of several write states.
  void add_own(const std::vector<std::vector<Block>>& blocks, std::size_t index) {
    const auto has_keys = [&](const std::vector<Block>& of_query) {
      return of_query[index].item.kv_begin < of_query[index].item.kv_end;
    };
    const bool shares = cascade_.level_of(blocks[0][index].item.request) >= 0;
    const auto met = std::count_if(blocks.begin(), blocks.end(), has_keys);
    std::vector<kernels::merge_states::Source> states;
    // Rows that see nothing are written all the same.
    if (met == 0 && !shares) add_states(blocks[0][index], 0, false, states);
    for (std::size_t query = 0; query < blocks.size(); ++query)
      if (has_keys(blocks[query]))
        add_states(blocks[query][index], static_cast<int>(query), shares || met > 1, states);
    if (shares || !states.empty()) add_merge(blocks[0][index], states);
  }

  /// Items of a block and one query; `states` receives theirs, if they are several or if `partial`.
  void add_states(const Block& block, int query, bool partial,
                  std::vector<kernels::merge_states::Source>& states) {
    const dense::Item& whole = block.item;
    const std::int64_t rows = whole.num_tokens * whole.num_heads;
    const KeyRange range{whole.kv_begin, whole.kv_end};
    // A request of several blocks gives every thread work already; unsplit, its bits do not depend
    // on how many blocks there are, nor a prompt's on how it is cut into steps.
    const bool may_split =
        !setup_.batch_invariant ||
        (batch_.form != BatchForm::extend && batch_.qo_len(whole.request) == whole.num_tokens);
    const plan::KvSplit split =
        may_split ? plan::split_kv(own_policy(block), range, block.cost, total_cost_)
                  : plan::KvSplit{.range = range};
    partial = partial || split.num_parts > 1;
    const double key_cost =
        block.cost / static_cast<double>(std::max<std::int64_t>(range.end - range.begin, 1));
    for (std::int64_t part = 0; part < split.num_parts; ++part) {
      const KeyRange keys = split.part(part);
      add_item(block, keys, partial ? partial_rows_ + part * rows : -1, whole.num_heads,
               key_cost * static_cast<double>(keys.end - keys.begin), query);
    }
    if (!partial) return;
    states.push_back({.first_row = partial_rows_,
                      .token_stride = whole.num_heads,
                      .part_stride = rows,
                      .num_parts = split.num_parts});
    partial_rows_ += split.num_parts * rows;
  }

  /// Decode's parts shrink, so that threads of unequal speed end together. The state of a packed
  /// block's many rows is as long as hundreds of its keys: one that is the whole batch is cut once a
  /// thread, and among many blocks one that is no more than half of a thread's work is not cut.
  [[nodiscard]] plan::SplitPolicy own_policy(const Block& block) const {
    plan::SplitPolicy policy = split_policy(setup_);
    policy.shrinking = block.decodes;
    if (block.decodes || policy.target_parts <= 1) return policy;
    if (num_blocks_ >= policy.target_parts) policy.whole_parts = kPartsPerThread / 2.0;
    if (block.cost >= total_cost_) policy.target_parts = setup_.num_threads;
    return policy;
  }

  /// Joins the states of a request's own keys, if any, and of its levels. One thread would read
  /// all parts of a long request at its own speed: the rows are shared out.
  void add_merge(const Block& block, const std::vector<kernels::merge_states::Source>& own) {
    const dense::Item& whole = block.item;
    const std::int64_t rows =
        base::ceil_div<std::int64_t>(whole.num_tokens * whole.num_heads, setup_.num_threads);
    const std::int64_t heads = std::min<std::int64_t>(rows, whole.num_heads);
    const std::int64_t tokens = std::max<std::int64_t>(rows / whole.num_heads, 1);
    for (std::int64_t t = 0; t < whole.num_tokens; t += tokens) {
      for (std::int64_t h = 0; h < whole.num_heads; h += heads) {
        dense::Item piece = whole;
        piece.first_token += t;
        piece.num_tokens = std::min(tokens, whole.num_tokens - t);
        piece.first_head += static_cast<int>(h);
        piece.num_heads = static_cast<int>(std::min(heads, whole.num_heads - h));
        std::vector<kernels::merge_states::Source> states = own;
        for (kernels::merge_states::Source& source : states)
          source.first_row += t * source.token_stride + h;
        add_merge_of(piece, states);
      }
    }
  }

  void add_merge_of(const dense::Item& rows,
                    const std::vector<kernels::merge_states::Source>& own) {
    kernels::merge_states::Item merge{
        .first_token = rows.first_token,
        .num_tokens = rows.num_tokens,
        .first_head = rows.first_head,
        .num_heads = rows.num_heads,
        .first_source = static_cast<std::int64_t>(plan_.sources.size())};
    plan_.sources.insert(plan_.sources.end(), own.begin(), own.end());
    for (std::int32_t i = cascade_.level_of(rows.request); i >= 0;) {
      const plan::SharedLevel& level = cascade_.levels[static_cast<std::size_t>(i)];
      kernels::merge_states::Source source = level_states_[static_cast<std::size_t>(i)];
      source.first_row +=
          (rows.first_token - level.first_token) * source.token_stride + rows.first_head;
      plan_.sources.push_back(source);
      i = level.outer;
    }
    merge.num_sources = static_cast<std::int64_t>(plan_.sources.size()) - merge.first_source;
    plan_.merges.push_back(merge);
  }

  const Setup& setup_;
  const BatchView& batch_;
  const plan::Cascade& cascade_;
  CpuPlan& plan_;
  double total_cost_ = 0.0;
  std::int64_t num_blocks_ = 0;
  std::vector<WorkItem> items_;
  std::vector<double> costs_;
  std::vector<kernels::merge_states::Source> level_states_;
  std::int64_t partial_rows_ = 0;
};

}  // namespace

dense::ScratchLayout decode_scratch(const Setup& setup) {
  return dense::scratch_layout(*setup.decode, {.rows = kernels::paged_decode::kMaxRows,
                                               .head_dim_qk = setup.spec.head_dim_qk,
                                               .head_dim_vo = setup.spec.head_dim_vo,
                                               .packed_latents = setup.packed_latents});
}

dense::ScratchLayout prefill_scratch(const Setup& setup) {
  return dense::scratch_layout(*setup.prefill, {.rows = kernels::ragged_prefill::kMaxRows,
                                                .head_dim_qk = setup.spec.head_dim_qk,
                                                .head_dim_vo = setup.spec.head_dim_vo,
                                                .packed_latents = setup.packed_latents});
}

std::size_t workspace_bytes(const Setup& setup, const BatchBounds& bounds) {
  plan::WorkspaceCutter count;
  lay_out(count, sizes(setup, bounds));
  return count.bytes();
}

void make_plan(const Setup& setup, const BatchView& batch, const attention::BatchFacts& facts,
               const Workspace& workspace, CpuPlan& plan) {
  const Sizes n = sizes(setup, attention::bounds_of(batch));
  plan::WorkspaceCutter cut(workspace.device);
  plan.facts = facts;
  plan.workspace = workspace;
  plan.parts = lay_out(cut, n);
  plan.scratch_bytes = n.scratch_bytes;
  plan.kv_indptr.assign(batch.kv_indptr.begin(), batch.kv_indptr.end());
  plan.kv_indices.assign(batch.kv_indices.begin(), batch.kv_indices.end());
  plan.custom_mask.assign(batch.custom_mask.begin(), batch.custom_mask.end());
  plan.custom_mask_indptr.assign(batch.custom_mask_indptr.begin(), batch.custom_mask_indptr.end());
  const BlockMaskView& mask = batch.block_mask;
  plan.mask_heads = mask.num_heads;
  plan.mask_indptr.assign(mask.indptr.begin(), mask.indptr.end());
  plan.mask_blocks.assign(mask.blocks.begin(), mask.blocks.end());
  plan.mask_bits.assign(mask.bits.begin(), mask.bits.end());
  place_queries(setup, batch, plan);
  // Masks and score functions are by request: rows of several requests cannot go through them
  // together. Nor can rows of several chunks meet a key by one query.
  const AttentionSpec& spec = setup.spec;
  const bool apart = spec.custom_mask || spec.block_mask || spec.score_mod || num_queries(spec) > 1;
  const plan::CascadeMode mode = apart ? plan::CascadeMode::off : setup.cascade;
  const plan::Cascade cascade =
      plan::find_levels(batch, plan.visible, cascade_costs(setup), mode, n.cascade_states);
  const std::int64_t partial_rows = ItemMaker(setup, batch, cascade, plan).make();
  require(partial_rows <= n.partial_rows, "the bound on split parts holds");
}

}  // namespace attune::backends::shared
