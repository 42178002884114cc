#include "backends/shared/cpu_planner.hpp"

#include <algorithm>
#include <cmath>

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

/// Parts each thread would get if all work were cut evenly: enough that the last one to finish
/// keeps the others waiting for a fraction of the whole only.
constexpr std::int64_t kPartsPerThread = 4;
/// Keys of a part where the neighbours may not matter.
constexpr std::int64_t kInvariantChunk = 4096;
/// Fewer rows would pack the same keys too often.
constexpr std::int64_t kMinBlockRows = 48;
/// What fetching or packing a key costs, in rows that multiply it.
constexpr double kReadingRows = 8.0;

static_assert(kPromptGranule % dense::kKeyTile == 0, "rows meet their keys in the same tiles");

/// Heads of one KV head that fit a block, and how many blocks hold them all.
struct HeadBlocks {
  std::int64_t heads;
  std::int64_t count;
};

HeadBlocks head_blocks(const AttentionSpec& spec) {
  const std::int64_t group = spec.gqa_group_size();
  const std::int64_t count = base::ceil_div<std::int64_t>(group, kernels::ragged_prefill::kMaxRows);
  return {base::ceil_div(group, count), count};
}

/// A single query token of few heads reads its keys in place.
bool decodes(const AttentionSpec& spec, std::int64_t qo_len) {
  return qo_len == 1 && spec.gqa_group_size() <= kernels::paged_decode::kMaxGroup &&
         !spec.custom_mask;
}

/// KV heads of one decode item: all of them, so that tiles are read from end to end, unless there
/// are too few keys to give every thread some; then the heads must.
std::int64_t decode_kv_heads(const Setup& setup, std::int64_t total_keys) {
  const AttentionSpec& spec = setup.spec;
  const std::int64_t most = std::clamp<std::int64_t>(
      kernels::paged_decode::kMaxRows / spec.gqa_group_size(), 1, spec.num_kv_heads);
  if (setup.batch_invariant) return most;
  const std::int64_t wanted = kPartsPerThread * setup.num_threads;
  const std::int64_t parts = std::max<std::int64_t>(total_keys / plan::SplitPolicy{}.min_chunk, 1);
  if (setup.num_threads == 1 || parts >= wanted) return most;
  const std::int64_t groups = base::ceil_div(wanted, parts);
  return std::clamp<std::int64_t>(spec.num_kv_heads / groups, 1, most);
}

plan::SplitPolicy split_policy(const Setup& setup) {
  plan::SplitPolicy policy{.granule = dense::kKeyTile};
  if (setup.batch_invariant)
    policy.fixed_chunk = kInvariantChunk;
  else if (setup.num_threads > 1)
    policy.target_parts = kPartsPerThread * setup.num_threads;
  return policy;
}

/// Rows of the largest block that may be split.
std::int64_t max_split_rows(const Setup& setup, const BatchBounds& bounds) {
  const AttentionSpec& spec = setup.spec;
  const std::int64_t decoding =
      decodes(spec, 1) ? std::min<std::int64_t>(spec.num_qo_heads, kernels::paged_decode::kMaxRows)
                       : head_blocks(spec).heads;
  if (bounds.decode_only) return decoding;
  return std::max(decoding, std::min<std::int64_t>(bounds.max_qo_tokens * spec.gqa_group_size(),
                                                   kernels::ragged_prefill::kMaxRows));
}

struct Sizes {
  int num_threads;
  std::int64_t scratch_bytes;
  std::int64_t partial_rows;
  std::int64_t head_dim_vo;
};

Sizes sizes(const Setup& setup, const BatchBounds& bounds) {
  if (bounds.max_qo_tokens == 0) return {};
  const AttentionSpec& spec = setup.spec;
  const bool prefills = !bounds.decode_only || !decodes(spec, 1);
  const bool decoding = decodes(spec, 1);
  const std::int64_t total_keys =
      std::min(bounds.max_kv_entries * bounds.page_size, bounds.max_batch * bounds.max_kv_len);
  const std::int64_t parts =
      plan::max_split_parts(split_policy(setup), spec.num_kv_heads * head_blocks(spec).count,
                            bounds.max_batch, bounds.max_kv_len, total_keys);
  return {.num_threads = setup.num_threads,
          .scratch_bytes = std::max(prefills ? prefill_scratch(setup).bytes : 0,
                                    decoding ? decode_scratch(setup).bytes : 0),
          .partial_rows = parts * max_split_rows(setup, bounds),
          .head_dim_vo = spec.head_dim_vo};
}

Parts lay_out(plan::WorkspaceCutter& cut, const Sizes& n) {
  return {.scratch = cut.take<std::byte>(n.num_threads * n.scratch_bytes),
          .partial_o = cut.take<float>(n.partial_rows * n.head_dim_vo),
          .partial_lse = cut.take<float>(n.partial_rows)};
}

/// What each query token sees and where it stands.
void place_queries(const Setup& setup, const BatchView& batch, CpuPlan& plan) {
  const AttentionSpec& spec = setup.spec;
  const attention::MaskRule rule{.causal = spec.causal && !spec.custom_mask,
                                 .window_left = spec.window_left,
                                 .window_right = spec.window_right,
                                 .attention_chunk = spec.attention_chunk};
  plan.visible.clear();
  plan.key_position.clear();
  plan.temperature.clear();
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t first = batch.first_kv_position(i);
    const std::int64_t end = first + batch.kv_len(i);
    for (std::int64_t p = end - batch.qo_len(i); p < end; ++p) {
      const KeyRange range = attention::visible_range(rule, p, first, end);
      plan.visible.push_back({range.begin - first, range.end - first});
      plan.key_position.push_back(p - first);
      if (spec.xai_temperature_len > 0)
        plan.temperature.push_back(
            p > spec.xai_temperature_len
                ? static_cast<float>(std::log2(static_cast<double>(p)) /
                                     std::log2(static_cast<double>(spec.xai_temperature_len)))
                : 1.0f);
    }
  }
}

/// Query rows that go through the keys together, before any split.
struct Block {
  dense::Item item;
  bool decodes = false;
  double cost = 0.0;
};

/// The keys any of the block's rows sees, and what the block costs: row-key products, packing.
void survey(const AttentionSpec& spec, const std::vector<KeyRange>& visible, Block& block) {
  KeyRange all{INT64_MAX, 0};
  KeyRange shared{0, INT64_MAX};
  double products = 0.0;
  for (std::int64_t t = 0; t < block.item.num_tokens; ++t) {
    const KeyRange& range = visible[static_cast<std::size_t>(block.item.first_token + t)];
    shared.begin = std::max(shared.begin, range.begin);
    shared.end = std::min(shared.end, range.end);
    if (range.begin >= range.end) continue;
    all.begin = std::min(all.begin, range.begin);
    all.end = std::max(all.end, range.end);
    products += static_cast<double>(range.end - range.begin);
  }
  if (all.begin >= all.end) all = {};
  block.item.shared = shared;
  block.item.kv_begin = all.begin;
  block.item.kv_end = all.end;
  const double reading =
      kReadingRows * static_cast<double>(all.end - all.begin) * block.item.num_kv_heads;
  // A decode item's heads are spread over its KV heads: each product is of one head and its keys.
  block.cost = (products * block.item.num_heads + reading) * (spec.head_dim_qk + spec.head_dim_vo);
}

std::vector<Block> make_blocks(const Setup& setup, const BatchView& batch,
                               const std::vector<KeyRange>& visible) {
  const AttentionSpec& spec = setup.spec;
  const std::int64_t group = spec.gqa_group_size();
  const HeadBlocks heads = head_blocks(spec);
  const std::int64_t max_rows = kernels::ragged_prefill::kMaxRows;
  // Where neighbours may not matter, a block is as large as it can be.
  const std::int64_t block_tokens =
      setup.batch_invariant ? std::max<std::int64_t>(max_rows / heads.heads, 1)
                            : plan::query_block_tokens(heads.heads, max_rows, kMinBlockRows,
                                                       batch.num_qo_tokens() * spec.num_qo_heads,
                                                       kPartsPerThread * setup.num_threads);
  const std::int64_t decode_heads =
      decode_kv_heads(setup, std::int64_t{batch.kv_indptr.back()} *
                                 (batch.source == KvSource::paged ? batch.page_size : 1));
  std::vector<Block> blocks;
  const auto add = [&](Block block) {
    survey(spec, visible, block);
    blocks.push_back(block);
  };
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t first_token = batch.qo_indptr[static_cast<std::size_t>(i)];
    const std::int64_t qo_len = batch.qo_len(i);
    // The last token of a prompt gets the bits that it would get among the others.
    const bool of_prompt = setup.batch_invariant && batch.form == BatchForm::extend;
    if (decodes(spec, qo_len) && !of_prompt) {
      for (std::int64_t kv_head = 0; kv_head < spec.num_kv_heads; kv_head += decode_heads) {
        const std::int64_t count = std::min(decode_heads, spec.num_kv_heads - kv_head);
        add({.item = {.request = i,
                      .first_token = first_token,
                      .num_tokens = 1,
                      .kv_head = static_cast<int>(kv_head),
                      .num_kv_heads = static_cast<int>(count),
                      .first_head = static_cast<int>(kv_head * group),
                      .num_heads = static_cast<int>(count * group),
                      .kv_len = batch.kv_len(i)},
             .decodes = true});
      }
      continue;
    }
    for (std::int64_t t = 0; t < qo_len; t += block_tokens) {
      for (int kv_head = 0; kv_head < spec.num_kv_heads; ++kv_head) {
        for (std::int64_t h = 0; h < group; h += heads.heads) {
          add({.item = {.request = i,
                        .first_token = first_token + t,
                        .num_tokens = std::min(block_tokens, qo_len - t),
                        .request_token = t,
                        .kv_head = kv_head,
                        .first_head = static_cast<int>(kv_head * group + h),
                        .num_heads = static_cast<int>(std::min(heads.heads, group - h)),
                        .kv_len = batch.kv_len(i)},
               .decodes = false});
        }
      }
    }
  }
  return blocks;
}

/// Returns the partial rows used.
std::int64_t make_items(const Setup& setup, const BatchView& batch, CpuPlan& plan) {
  const std::vector<Block> blocks = make_blocks(setup, batch, plan.visible);
  double total = 0.0;
  for (const Block& block : blocks) total += block.cost;

  const plan::SplitPolicy policy = split_policy(setup);
  std::vector<WorkItem> items;
  std::vector<double> costs;
  std::int64_t partial_rows = 0;
  plan.merges.clear();
  for (const Block& block : blocks) {
    const dense::Item& whole = block.item;
    const std::int64_t rows = whole.num_tokens * whole.num_heads;
    // A request of several blocks gives every thread work already; unsplit, its bits do not depend
    // on how many blocks there are, nor a prompt's on how it is cut into steps.
    const bool may_split =
        !setup.batch_invariant ||
        (batch.form != BatchForm::extend && batch.qo_len(whole.request) == whole.num_tokens);
    const KeyRange range{whole.kv_begin, whole.kv_end};
    const plan::KvSplit split = may_split ? plan::split_kv(policy, range, block.cost, total)
                                          : plan::KvSplit{.range = range};
    for (std::int64_t part = 0; part < split.num_parts; ++part) {
      WorkItem work{.item = whole, .decodes = block.decodes};
      const KeyRange keys = split.part(part);
      work.item.kv_begin = keys.begin;
      work.item.kv_end = keys.end;
      if (split.num_parts > 1) work.item.partial_row = partial_rows + part * rows;
      items.push_back(work);
      costs.push_back(block.cost / static_cast<double>(split.num_parts));
    }
    if (split.num_parts > 1) {
      plan.merges.push_back({.first_token = whole.first_token,
                             .num_tokens = whole.num_tokens,
                             .first_head = whole.first_head,
                             .num_heads = whole.num_heads,
                             .first_partial_row = partial_rows,
                             .num_parts = split.num_parts});
      partial_rows += split.num_parts * rows;
    }
  }
  plan.items.clear();
  for (const std::int32_t i : plan::costliest_first(costs))
    plan.items.push_back(items[static_cast<std::size_t>(i)]);
  return partial_rows;
}

}  // namespace

dense::ScratchLayout decode_scratch(const Setup& setup) {
  return dense::scratch_layout(*setup.decode, {.rows = kernels::paged_decode::kMaxRows,
                                               .head_dim_qk = setup.spec.head_dim_qk,
                                               .head_dim_vo = setup.spec.head_dim_vo,
                                               .packs_keys = false});
}

dense::ScratchLayout prefill_scratch(const Setup& setup) {
  return dense::scratch_layout(*setup.prefill, {.rows = kernels::ragged_prefill::kMaxRows,
                                                .head_dim_qk = setup.spec.head_dim_qk,
                                                .head_dim_vo = setup.spec.head_dim_vo,
                                                .packs_keys = true});
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
  place_queries(setup, batch, plan);
  const std::int64_t partial_rows = make_items(setup, batch, plan);
  require(partial_rows <= n.partial_rows, "the bound on split parts holds");
}

}  // namespace attune::backends::shared
