#include "backends/shared/cpu_block_sparse.hpp"

#include <algorithm>
#include <limits>

#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "backends/shared/cpu_block_selection.hpp"
#include "backends/shared/cpu_blocks.hpp"
#include "backends/shared/cpu_planned.hpp"
#include "backends/shared/cpu_run.hpp"
#include "backends/shared/dense_glue.hpp"
#include "backends/shared/for_each.hpp"
#include "base/join.hpp"

namespace attune::backends::shared {
namespace {

namespace dense = kernels::dense;
using attention::BatchFacts;

constexpr std::int64_t kMostEntries = std::numeric_limits<std::int32_t>::max();

SparseSizes sizes(const BlockSparseSetup& setup, const BatchBounds& bounds) {
  SparseSizes n = sparse_sizes({.dense = setup.dense}, bounds, 0);
  if (n.threads == 0) return n;
  n.partial_rows = most_partial_rows(setup.dense);
  n.selection = block_selection_sizes(setup.dense.spec, *setup.scores, setup.dense.num_threads,
                                      bounds.max_qo_tokens, bounds.max_kv_len, setup.page_size);
  return n;
}

/// One run: what its work items share.
struct BlockRun {
  const BlockSparseSetup& setup;
  const CpuBlockSparsePlan& plan;
  dense::Params params;  ///< over small pages; kept keys of the first KV head
  std::int64_t key_bytes;
  bool chooses;  ///< by an indexer: queries that leave nothing out are not ours

  [[nodiscard]] bool is_ours(std::int64_t token) const {
    return !chooses || plan.selection.seen[static_cast<std::size_t>(token)] > setup.dense.most_keys;
  }

  void attend(std::int64_t n, int thread) const {
    dense::Item item = plan.work.items[static_cast<std::size_t>(n)];
    if (!is_ours(item.first_token)) return;
    const std::int64_t tokens = plan.facts.num_qo_tokens;
    dense::Params p = params;
    p.visible += item.kv_head * tokens;
    const attention::KeyRange kept = p.visible[item.first_token];
    item.kv_begin = std::min(item.kv_begin, kept.end);
    item.kv_end = std::min(item.kv_end, kept.end);
    if (item.kv_begin >= item.kv_end) item.kv_begin = item.kv_end = 0;
    item.kv_len = kept.end;
    item.shared = kept;
    if (plan.selection.ragged) begin_at_request(item.first_token, p.kv);
    void* const scratch = plan.parts.scratch + thread * plan.scratch_bytes;
    const dense::KernelRow& kernel =
        decodes(setup.dense.spec, 1) ? *setup.dense.decode : *setup.dense.prefill;
    kernel.run(p, item, scratch);
  }

  /// Blocks of ragged keys count from the request's first one.
  void begin_at_request(std::int64_t token, attention::PagedKv& kv) const {
    const std::int32_t request = plan.selection.request_of_token[static_cast<std::size_t>(token)];
    const std::int64_t first = plan.selection.kv_indptr[static_cast<std::size_t>(request)];
    kv.k = static_cast<const char*>(kv.k) + first * kv.k_token_stride * key_bytes;
    kv.v = static_cast<const char*>(kv.v) + first * kv.v_token_stride * key_bytes;
  }

  void merge(std::int64_t n, int thread) const {
    const kernels::merge_states::Item& rows = plan.work.merges[static_cast<std::size_t>(n)];
    if (!is_ours(rows.first_token)) return;
    auto* const sums = reinterpret_cast<float*>(plan.parts.scratch + thread * plan.scratch_bytes);
    kernels::merge_states::run(params, rows, plan.work.sources.data(), sums);
  }
};

class CpuBlockSparseBackend final : public CpuPlanned<BlockSparseSetup, CpuBlockSparsePlan> {
 public:
  using CpuPlanned::CpuPlanned;

  Status run(const Plan& plan, const LayerCall& call, Stream) override;

 private:
  [[nodiscard]] Status check(const BatchView& batch, const BatchFacts& facts) const override;
  /// Where kept blocks lie in the cache, as pages.
  [[nodiscard]] Result<BlockPages> pages_of(const BatchFacts& facts, const LayerCall& call) const;
  [[nodiscard]] dense::Params params_of(const LayerCall& call) const;
  /// Of queries that leave nothing out.
  [[nodiscard]] dense::Params dense_params(const CpuBlockSparsePlan& plan,
                                           const LayerCall& call) const;
  [[nodiscard]] dense::Params list_params(const CpuBlockSparsePlan& plan, const BlockPages& pages,
                                          const LayerCall& call) const;
};

Status CpuBlockSparseBackend::check(const BatchView&, const BatchFacts& facts) const {
  const AttentionSpec& spec = context_.spec;
  const std::int64_t keys = block_page_keys(spec, context_.page_size, false);
  const std::int64_t a_token =
      std::int64_t{spec.num_kv_heads} * spec.index_topk * (spec.index_block_size / keys);
  if (facts.num_qo_tokens <= kMostEntries / a_token) return {};
  return unsupported(base::join(descriptor_.name, " counts pages of kept blocks in 31 bits: ",
                                facts.num_qo_tokens, " tokens of ", a_token, " pages"));
}

Result<BlockPages> CpuBlockSparseBackend::pages_of(const BatchFacts& facts,
                                                   const LayerCall& call) const {
  const bool ragged = facts.source == KvSource::ragged;
  BlockPages pages{.keys = block_page_keys(context_.spec, context_.page_size, ragged)};
  if (ragged || pages.keys == context_.page_size || facts.max_page_id < 0) return pages;
  // A part of a page is found by its number only where pages are whole multiples of it.
  const attention::PagedKv kv = paged_keys(call, context_.kv_layout, context_.page_size);
  const std::int64_t part = pages.keys * kv.k_token_stride;
  pages.per_page = kv.k_page_stride / part;
  if (kv.k_page_stride % part != 0 ||
      kv.v_page_stride != pages.per_page * pages.keys * kv.v_token_stride)
    return unsupported(base::join(
        descriptor_.name, " finds blocks of ", context_.spec.index_block_size, " keys in pages of ",
        context_.page_size, " by parts of ", pages.keys,
        ": pages of k_cache and v_cache must lie as many of these apart, have strides of ",
        kv.k_page_stride, " and ", kv.v_page_stride, " elements"));
  if (facts.max_page_id >= kMostEntries / pages.per_page)
    return unsupported(base::join(descriptor_.name, " counts parts of pages in 31 bits: page id ",
                                  facts.max_page_id, " times ", pages.per_page));
  return pages;
}

dense::Params CpuBlockSparseBackend::params_of(const LayerCall& call) const {
  const AttentionSpec& spec = context_.spec;
  dense::Params p{.q = rows_of(call.q),
                  .o = rows_of(call.o),
                  .kv = {},
                  .rows_alike = setup_.dense.batch_invariant,
                  .head_dim_qk = spec.head_dim_qk,
                  .head_dim_vo = spec.head_dim_vo,
                  .gqa_group_size = spec.gqa_group_size(),
                  .logit_scale = spec.sm_scale * call.q_scale,
                  .k_scale_per_head = call.k_scale_per_head,
                  .v_scale_per_head = call.v_scale_per_head,
                  .scratch = {}};
  if (call.k_scale_per_head == nullptr) p.logit_scale *= call.k_scale;
  if (call.v_scale_per_head == nullptr) p.v_scale = call.v_scale;
  set_lse(call, p);
  return p;
}

dense::Params CpuBlockSparseBackend::dense_params(const CpuBlockSparsePlan& plan,
                                                  const LayerCall& call) const {
  dense::Params p = params_of(call);
  if (plan.selection.ragged) {
    p.kv = ragged_keys(call, context_.spec.variant);
  } else {
    p.kv = paged_keys(call, context_.kv_layout, context_.page_size);
    p.kv.indices = plan.selection.kv_indices.data();
  }
  p.kv.indptr = plan.selection.kv_indptr.data();
  p.visible = plan.dense.visible.data();
  p.key_position = plan.dense.key_position.data();
  p.partial_o = plan.dense.parts.partial_o;
  p.partial_lse = plan.dense.parts.partial_lse;
  return p;
}

dense::Params CpuBlockSparseBackend::list_params(const CpuBlockSparsePlan& plan,
                                                 const BlockPages& pages,
                                                 const LayerCall& call) const {
  const AttentionSpec& spec = context_.spec;
  attention::PagedKv kv = paged_keys(call, context_.kv_layout, context_.page_size);
  if (plan.selection.ragged) {
    kv = ragged_keys(call, spec.variant);
    kv.k_token_stride = kv.k_page_stride;
    kv.v_token_stride = kv.v_page_stride;
  }
  if (plan.selection.ragged || pages.keys != context_.page_size) {
    kv.k_page_stride = pages.keys * kv.k_token_stride;
    kv.v_page_stride = pages.keys * kv.v_token_stride;
  }
  kv.page_size = static_cast<std::int32_t>(pages.keys);
  kv.indptr = plan.selection.list_indptr.data();
  kv.indices = plan.selection.parts.slots;
  dense::Params p = params_of(call);
  p.kv = kv;
  p.visible = plan.selection.parts.kept;
  p.partial_o = plan.parts.partial_o;
  p.partial_lse = plan.parts.partial_lse;
  p.scratch = decodes(spec, 1) ? decode_scratch(setup_.dense) : prefill_scratch(setup_.dense);
  return p;
}

Status CpuBlockSparseBackend::run(const Plan& plan, const LayerCall& call, Stream) {
  const auto& mine = static_cast<const CpuBlockSparsePlan&>(plan);
  if (Status s = attention::validate_run(call, mine.facts, context_.spec, context_.page_size,
                                         context_.kv_layout);
      !s.ok())
    return s;
  if (mine.facts.num_qo_tokens == 0) return {};
  const Result<BlockPages> pages = pages_of(mine.facts, call);
  if (!pages.ok()) return pages.status();
  select_blocks(context_.spec, *setup_.scores, mine.selection, *pages, *call.sparse, *executor_);
  const bool chooses = call.sparse->index_q.defined();
  // Items of these also write rows of the others, with nothing: those come later.
  if (chooses && mine.any_dense)
    run_plan(setup_.dense, mine.dense, dense_params(mine, call), *executor_);
  if (chooses && !mine.any_sparse) return {};
  const BlockRun run{.setup = setup_,
                     .plan = mine,
                     .params = list_params(mine, *pages, call),
                     .key_bytes = static_cast<std::int64_t>(size_of(context_.spec.kv_dtype)),
                     .chooses = chooses};
  for_each<&BlockRun::attend>(*executor_, static_cast<std::int64_t>(mine.work.items.size()), run);
  for_each<&BlockRun::merge>(*executor_, static_cast<std::int64_t>(mine.work.merges.size()), run);
  return {};
}

}  // namespace

std::size_t workspace_bytes(const BlockSparseSetup& setup, const BatchBounds& bounds) {
  return workspace_bytes(setup.dense, bounds) + bytes_of(sizes(setup, bounds));
}

void make_plan(const BlockSparseSetup& setup, const BatchView& batch,
               const attention::BatchFacts& facts, const Workspace& workspace,
               CpuBlockSparsePlan& plan) {
  const AttentionSpec& spec = setup.dense.spec;
  const BatchBounds bounds = attention::bounds_of(batch);
  const SparseSizes n = sizes(setup, bounds);
  Workspace lists = workspace;
  if (workspace.device != nullptr)
    lists.device = static_cast<std::byte*>(workspace.device) + workspace_bytes(setup.dense, bounds);
  begin_plan(n, facts, lists, plan);
  plan.workspace = workspace;
  SelectionPlan& selection = plan.selection;
  selection.ragged = facts.source == KvSource::ragged;
  selection.page_size = batch.page_size;
  selection.kv_indptr.assign(batch.kv_indptr.begin(), batch.kv_indptr.end());
  selection.kv_indices.assign(batch.kv_indices.begin(), batch.kv_indices.end());
  place_queries(batch, selection);
  place_lists(spec, selection);
  const std::int64_t partial_rows =
      share_out(setup.dense, static_cast<std::int64_t>(selection.seen.size()),
                setup.dense.most_keys, selection.longest_seen, plan.work);
  require(partial_rows <= n.partial_rows, "the bound on split parts holds");
  const auto leaves_out = [&](std::int64_t seen) { return seen > setup.dense.most_keys; };
  plan.any_sparse = std::ranges::any_of(selection.seen, leaves_out);
  plan.any_dense = !std::ranges::all_of(selection.seen, leaves_out);
  if (plan.any_dense) make_plan(setup.dense, batch, facts, workspace, plan.dense);
}

Result<std::unique_ptr<Backend>> make_cpu_block_sparse(const BackendContext& context,
                                                       const BackendDescriptor& descriptor,
                                                       const BlockSparseSetup& setup) {
  if (setup.scores == nullptr)
    return unsupported(base::join(descriptor.name, " has no kernel for index keys in ",
                                  name(context.spec.index_dtype)));
  BlockSparseSetup mine = setup;
  // Rows of a level would meet keys that some of them leave out.
  mine.dense.cascade = plan::CascadeMode::off;
  mine.dense.most_keys = std::int64_t{context.spec.index_topk} * context.spec.index_block_size;
  return std::unique_ptr<Backend>(
      std::make_unique<CpuBlockSparseBackend>(context, descriptor, mine));
}

}  // namespace attune::backends::shared
