#include "backends/shared/cpu_sparse_plan.hpp"

#include <algorithm>

#include <attune/status.hpp>

#include "backends/shared/cpu_blocks.hpp"
#include "base/math.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared {
namespace {

namespace dense = kernels::dense;

SparseSizes sizes(const SparseSetup& setup, const BatchBounds& bounds) {
  SparseSizes n = sparse_sizes(setup, bounds, bounds.max_kv_len);
  if (n.threads > 0) n.partial_rows = most_partial_rows(setup.dense);
  return n;
}

}  // namespace

void place_queries(const BatchView& batch, SelectionPlan& selection) {
  selection.clear();
  for (std::int64_t i = 0; i < batch.batch_size(); ++i)
    for (std::int64_t row = 0; row < batch.qo_len(i); ++row)
      selection.add_query(i,
                          std::max<std::int64_t>(0, batch.kv_len(i) - batch.qo_len(i) + row + 1));
}

std::int64_t share_out(const Setup& setup, std::int64_t tokens, std::int64_t room,
                       std::int64_t longest, ListWork& work) {
  const AttentionSpec& spec = setup.spec;
  work.items.clear();
  work.merges.clear();
  work.sources.clear();
  if (tokens == 0) return 0;
  const std::int64_t group = spec.gqa_group_size();
  const std::int64_t heads = block_heads(spec);
  const std::int64_t lists = tokens * spec.num_kv_heads;
  const std::int64_t blocks = lists * base::ceil_div(group, heads);
  const std::int64_t wanted = parts_wanted(setup);
  const std::int64_t most = std::max<std::int64_t>(1, std::min(room, longest) / kMinPart);
  const std::int64_t parts = blocks >= wanted ? 1 : std::min(most, base::ceil_div(wanted, blocks));
  const std::int64_t part_keys =
      base::round_up<std::int64_t>(base::ceil_div(room, parts), dense::kKeyTile);
  std::int64_t partial_rows = 0;
  for (std::int64_t list = 0; list < lists; ++list) {
    const std::int64_t token = list / spec.num_kv_heads;
    const std::int64_t kv_head = list % spec.num_kv_heads;
    for (std::int64_t first = 0; first < group; first += heads) {
      const auto count = static_cast<int>(std::min(heads, group - first));
      dense::Item item{.request = list,
                       .first_token = token,
                       .num_tokens = 1,
                       .kv_head = static_cast<int>(kv_head),
                       .first_head = static_cast<int>(kv_head * group + first),
                       .num_heads = count,
                       .partial_row = -1,
                       .partial_stride = count};
      for (std::int64_t part = 0; part < parts; ++part) {
        item.kv_begin = part * part_keys;
        item.kv_end = part + 1 == parts ? room : (part + 1) * part_keys;
        if (parts > 1) item.partial_row = partial_rows + part * count;
        work.items.push_back(item);
      }
      if (parts == 1) continue;
      work.merges.push_back({.first_token = token,
                             .num_tokens = 1,
                             .first_head = item.first_head,
                             .num_heads = count,
                             .first_source = static_cast<std::int64_t>(work.sources.size()),
                             .num_sources = 1});
      work.sources.push_back({.first_row = partial_rows,
                              .token_stride = count,
                              .part_stride = count,
                              .num_parts = parts});
      partial_rows += parts * count;
    }
  }
  return partial_rows;
}

/// Only fewer blocks than threads have parts are cut, into less than twice as many.
std::int64_t most_partial_rows(const Setup& setup) {
  return 2 * parts_wanted(setup) * block_heads(setup.spec);
}

std::int64_t block_heads(const AttentionSpec& spec) {
  return decodes(spec, 1) ? spec.gqa_group_size() : head_blocks(spec).heads;
}

SparseSizes sparse_sizes(const SparseSetup& setup, const BatchBounds& bounds,
                         std::int64_t max_keys) {
  if (bounds.max_qo_tokens == 0) return {};
  const AttentionSpec& spec = setup.dense.spec;
  SparseSizes n{.threads = setup.dense.num_threads,
                .scratch_bytes = decodes(spec, 1) ? decode_scratch(setup.dense).bytes
                                                  : prefill_scratch(setup.dense).bytes,
                .selection = {},
                .head_dim_vo = spec.head_dim_vo};
  if (setup.scores != nullptr)
    n.selection = selection_sizes(spec, *setup.scores, setup.dense.num_threads,
                                  bounds.max_qo_tokens, max_keys);
  return n;
}

SparseParts lay_out(plan::WorkspaceCutter& cut, const SparseSizes& n) {
  return {.scratch = cut.take<std::byte>(n.threads * n.scratch_bytes),
          .partial_o = cut.take<float>(n.partial_rows * n.head_dim_vo),
          .partial_lse = cut.take<float>(n.partial_rows)};
}

std::size_t bytes_of(const SparseSizes& n) {
  plan::WorkspaceCutter count;
  lay_out(count, n);
  lay_out(count, n.selection);
  return count.bytes();
}

void begin_plan(const SparseSizes& n, const attention::BatchFacts& facts,
                const Workspace& workspace, SparsePlanBase& plan) {
  plan::WorkspaceCutter cut(workspace.device);
  plan.facts = facts;
  plan.workspace = workspace;
  plan.parts = lay_out(cut, n);
  plan.scratch_bytes = n.scratch_bytes;
  plan.selection.sizes = n.selection;
  plan.selection.parts = lay_out(cut, n.selection);
}

std::int64_t parts_wanted(const Setup& setup) {
  const bool splits = setup.num_threads > 1 && !setup.batch_invariant;
  return splits ? kPartsPerThread * setup.num_threads : 0;
}

std::size_t workspace_bytes(const SparseSetup& setup, const BatchBounds& bounds) {
  return bytes_of(sizes(setup, bounds));
}

void make_plan(const SparseSetup& setup, const BatchView& batch, const attention::BatchFacts& facts,
               const Workspace& workspace, CpuSparsePlan& plan) {
  const SparseSizes n = sizes(setup, attention::bounds_of(batch));
  begin_plan(n, facts, workspace, plan);
  SelectionPlan& selection = plan.selection;
  selection.ragged = facts.source == KvSource::ragged;
  selection.page_size = batch.page_size;
  selection.kv_indptr.assign(batch.kv_indptr.begin(), batch.kv_indptr.end());
  selection.kv_indices.assign(batch.kv_indices.begin(), batch.kv_indices.end());
  place_queries(batch, selection);
  const std::int64_t partial_rows =
      share_out(setup.dense, static_cast<std::int64_t>(selection.seen.size()),
                setup.dense.spec.index_topk, selection.longest_seen, plan.work);
  require(partial_rows <= n.partial_rows, "the bound on split parts holds");
}

}  // namespace attune::backends::shared
