#include "backends/shared/cpu_compressed_plan.hpp"

#include <algorithm>

#include <attune/status.hpp>

#include "backends/shared/cpu_blocks.hpp"
#include "base/math.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared {
namespace {

namespace dense = kernels::dense;

SparseSizes sizes(const CompressedSetup& setup, const BatchBounds& bounds) {
  const AttentionSpec& spec = setup.dense.spec;
  SparseSizes n = sparse_sizes(setup, bounds, bounds.max_positions / spec.compress_ratio);
  // A window and a part for each thread, or for each block of fewer than are wanted, cut into less
  // than twice as many.
  n.partial_rows = std::max(2 * n.threads, n.threads > 0 ? 3 * parts_wanted(setup.dense) : 0) *
                   block_heads(spec);
  return n;
}

/// What each query token sees of either table.
void place_queries(const AttentionSpec& spec, const BatchView& batch, CpuCompressedPlan& plan) {
  const attention::MaskRule rule{.causal = true, .window_left = spec.window_left};
  plan.selection.clear();
  plan.seen.clear();
  plan.visible.clear();
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t first = batch.first_kv_position(i);
    const std::int64_t end = first + batch.kv_len(i);
    for (std::int64_t p = end - batch.qo_len(i); p < end; ++p) {
      const attention::KeyRange range = attention::visible_range(rule, p, first, end);
      plan.visible.push_back({range.begin - first, range.end - first});
      const std::int64_t compressed = p < 0 ? 0 : (p + 1) / spec.compress_ratio;
      plan.seen.push_back({0, compressed});
      plan.selection.add_query(i, compressed);
    }
  }
}

void make_blocks(const CompressedSetup& setup, CpuCompressedPlan& plan) {
  const AttentionSpec& spec = setup.dense.spec;
  plan.blocks.clear();
  plan.block_heads = block_heads(spec);
  std::int64_t longest = plan.selection.longest_seen;
  if (setup.scores != nullptr) longest = spec.index_topk;
  for (std::size_t t = 0; t < plan.visible.size(); ++t) {
    for (std::int64_t head = 0; head < spec.num_qo_heads; head += plan.block_heads) {
      const auto heads = static_cast<int>(std::min(plan.block_heads, spec.num_qo_heads - head));
      const std::int64_t request = plan.selection.request_of_token[t];
      const auto token = static_cast<std::int64_t>(t);
      dense::Item item{.request = request,
                       .first_token = token,
                       .num_tokens = 1,
                       .first_head = static_cast<int>(head),
                       .num_heads = heads,
                       .kv_begin = plan.visible[t].begin,
                       .kv_end = plan.visible[t].end,
                       .shared = plan.visible[t],
                       .partial_stride = heads};
      dense::Item compressed = item;
      // A list is a request of its own, of which run() says how long it is.
      if (setup.scores != nullptr) compressed.request = token;
      compressed.kv_begin = plan.seen[t].begin;
      compressed.kv_end = plan.seen[t].end;
      compressed.shared = plan.seen[t];
      plan.blocks.push_back({.window = item, .compressed = compressed});
    }
  }
  const auto blocks = static_cast<std::int64_t>(plan.blocks.size());
  plan.num_parts = 1;
  plan.part_keys = longest;
  if (blocks == 0 || blocks >= parts_wanted(setup.dense)) return;
  plan.num_parts = std::clamp<std::int64_t>(longest / kMinPart, 1,
                                            base::ceil_div(parts_wanted(setup.dense), blocks));
  plan.part_keys =
      base::round_up<std::int64_t>(base::ceil_div(longest, plan.num_parts), dense::kKeyTile);
}

}  // namespace

std::size_t workspace_bytes(const CompressedSetup& setup, const BatchBounds& bounds) {
  return bytes_of(sizes(setup, bounds));
}

void make_plan(const CompressedSetup& setup, const BatchView& batch,
               const attention::BatchFacts& facts, const Workspace& workspace,
               CpuCompressedPlan& plan) {
  const AttentionSpec& spec = setup.dense.spec;
  const SparseSizes n = sizes(setup, attention::bounds_of(batch));
  begin_plan(n, facts, workspace, plan);
  SelectionPlan& selection = plan.selection;
  selection.page_size = batch.page_size / spec.compress_ratio;
  selection.kv_indptr.assign(batch.compressed.kv_indptr.begin(), batch.compressed.kv_indptr.end());
  selection.kv_indices.assign(batch.compressed.kv_indices.begin(),
                              batch.compressed.kv_indices.end());
  plan.window_indptr.assign(batch.kv_indptr.begin(), batch.kv_indptr.end());
  plan.window_indices.assign(batch.kv_indices.begin(), batch.kv_indices.end());
  place_queries(spec, batch, plan);
  make_blocks(setup, plan);
  const auto blocks = static_cast<std::int64_t>(plan.blocks.size());
  require(plan.num_parts == 1 || blocks * (1 + plan.num_parts) * plan.block_heads <= n.partial_rows,
          "the bound on split parts holds");
}

}  // namespace attune::backends::shared
