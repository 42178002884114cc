#include "backends/shared/cpu_sparse_plan.hpp"

#include <algorithm>

#include <attune/status.hpp>

#include "backends/shared/cpu_blocks.hpp"
#include "base/math.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared {
namespace {

namespace dense = kernels::dense;

/// Kept keys that a part has at least: a state of many rows is as long as hundreds of them.
constexpr std::int64_t kMinPart = 256;

struct Sizes {
  std::int64_t threads = 0;
  std::int64_t scratch_bytes = 0;
  std::int64_t index_floats = 0;
  std::int64_t max_kv_len = 0;
  std::int64_t tokens = 0;
  std::int64_t topk = 0;
  std::int64_t partial_rows = 0;
  std::int64_t head_dim_vo = 0;
};

std::int64_t block_heads(const AttentionSpec& spec) {
  return decodes(spec, 1) ? spec.num_qo_heads : head_blocks(spec).heads;
}

Sizes sizes(const SparseSetup& setup, const BatchBounds& bounds) {
  if (bounds.max_qo_tokens == 0) return {};
  const AttentionSpec& spec = setup.dense.spec;
  const std::int64_t threads = setup.dense.num_threads;
  // Only fewer blocks than threads have parts are cut, into less than twice as many.
  const bool splits = threads > 1 && !setup.dense.batch_invariant;
  return {.threads = threads,
          .scratch_bytes = decodes(spec, 1) ? decode_scratch(setup.dense).bytes
                                            : prefill_scratch(setup.dense).bytes,
          .index_floats = kernels::index_scores::scratch_floats(
              spec.index_num_heads, spec.index_head_dim, setup.scores->lanes),
          .max_kv_len = bounds.max_kv_len,
          .tokens = bounds.max_qo_tokens,
          .topk = spec.index_topk,
          .partial_rows = splits ? 2 * kPartsPerThread * threads * block_heads(spec) : 0,
          .head_dim_vo = spec.head_dim_vo};
}

SparseParts lay_out(plan::WorkspaceCutter& cut, const Sizes& n) {
  return {.scratch = cut.take<std::byte>(n.threads * n.scratch_bytes),
          .index_scratch = cut.take<float>(n.threads * n.index_floats),
          .scores = cut.take<float>(n.threads * n.max_kv_len),
          .slots = cut.take<std::int32_t>(n.tokens * n.topk),
          .kept = cut.take<attention::KeyRange>(n.tokens),
          .partial_o = cut.take<float>(n.partial_rows * n.head_dim_vo),
          .partial_lse = cut.take<float>(n.partial_rows)};
}

void place_queries(const SparseSetup& setup, const BatchView& batch, CpuSparsePlan& plan) {
  plan.request_of_token.clear();
  plan.visible.clear();
  plan.longest_visible = 0;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t keys = batch.kv_len(i);
    for (std::int64_t row = 0; row < batch.qo_len(i); ++row) {
      const std::int64_t seen = std::max<std::int64_t>(0, keys - batch.qo_len(i) + row + 1);
      plan.request_of_token.push_back(static_cast<std::int32_t>(i));
      plan.visible.push_back(seen);
      plan.longest_visible = std::max(plan.longest_visible, seen);
    }
  }
  plan.list_indptr.clear();
  for (std::int64_t token = 0; token <= batch.num_qo_tokens(); ++token)
    plan.list_indptr.push_back(static_cast<std::int32_t>(token * setup.dense.spec.index_topk));
}

/// Tokens by blocks of heads, each against all of its list or, where they are few, against parts of
/// it. Returns the partial rows used.
std::int64_t make_items(const SparseSetup& setup, CpuSparsePlan& plan) {
  const AttentionSpec& spec = setup.dense.spec;
  plan.items.clear();
  plan.merges.clear();
  plan.sources.clear();
  const auto tokens = static_cast<std::int64_t>(plan.visible.size());
  if (tokens == 0) return 0;
  const std::int64_t heads = block_heads(spec);
  const std::int64_t blocks = tokens * base::ceil_div<std::int64_t>(spec.num_qo_heads, heads);
  const std::int64_t wanted = setup.dense.num_threads > 1 && !setup.dense.batch_invariant
                                  ? kPartsPerThread * setup.dense.num_threads
                                  : 0;
  const std::int64_t list = std::min<std::int64_t>(spec.index_topk, plan.longest_visible);
  const std::int64_t most = std::max<std::int64_t>(1, list / kMinPart);
  const std::int64_t parts = blocks >= wanted ? 1 : std::min(most, base::ceil_div(wanted, blocks));
  const std::int64_t part_keys = base::round_up<std::int64_t>(
      base::ceil_div<std::int64_t>(spec.index_topk, parts), dense::kKeyTile);
  std::int64_t partial_rows = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t first = 0; first < spec.num_qo_heads; first += heads) {
      const auto count = static_cast<int>(std::min(heads, spec.num_qo_heads - first));
      dense::Item item{.request = token,
                       .first_token = token,
                       .num_tokens = 1,
                       .first_head = static_cast<int>(first),
                       .num_heads = count,
                       .partial_row = -1,
                       .partial_stride = count};
      for (std::int64_t part = 0; part < parts; ++part) {
        item.kv_begin = part * part_keys;
        item.kv_end = part + 1 == parts ? spec.index_topk : (part + 1) * part_keys;
        if (parts > 1) item.partial_row = partial_rows + part * count;
        plan.items.push_back(item);
      }
      if (parts == 1) continue;
      plan.merges.push_back({.first_token = token,
                             .num_tokens = 1,
                             .first_head = static_cast<int>(first),
                             .num_heads = count,
                             .first_source = static_cast<std::int64_t>(plan.sources.size()),
                             .num_sources = 1});
      plan.sources.push_back({.first_row = partial_rows,
                              .token_stride = count,
                              .part_stride = count,
                              .num_parts = parts});
      partial_rows += parts * count;
    }
  }
  return partial_rows;
}

}  // namespace

std::size_t workspace_bytes(const SparseSetup& setup, const BatchBounds& bounds) {
  plan::WorkspaceCutter count;
  lay_out(count, sizes(setup, bounds));
  return count.bytes();
}

void make_plan(const SparseSetup& setup, const BatchView& batch, const attention::BatchFacts& facts,
               const Workspace& workspace, CpuSparsePlan& plan) {
  const Sizes n = sizes(setup, attention::bounds_of(batch));
  plan::WorkspaceCutter cut(workspace.device);
  plan.facts = facts;
  plan.workspace = workspace;
  plan.parts = lay_out(cut, n);
  plan.scratch_bytes = n.scratch_bytes;
  plan.index_floats = n.index_floats;
  plan.max_kv_len = n.max_kv_len;
  plan.kv_indptr.assign(batch.kv_indptr.begin(), batch.kv_indptr.end());
  plan.kv_indices.assign(batch.kv_indices.begin(), batch.kv_indices.end());
  place_queries(setup, batch, plan);
  const std::int64_t partial_rows = make_items(setup, plan);
  require(partial_rows <= n.partial_rows, "the bound on split parts holds");
}

}  // namespace attune::backends::shared
