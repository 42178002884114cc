#include "backends/shared/cpu_compressed.hpp"

#include <algorithm>
#include <cstdint>

#include <attune/compressed_call.hpp>
#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "attention/validate_compressed.hpp"
#include "backends/shared/cpu_blocks.hpp"
#include "backends/shared/cpu_compressed_plan.hpp"
#include "backends/shared/cpu_planned.hpp"
#include "backends/shared/dense_glue.hpp"
#include "backends/shared/for_each.hpp"
#include "backends/shared/sparse_checks.hpp"
#include "base/join.hpp"

namespace attune::backends::shared {
namespace {

namespace dense = kernels::dense;
using attention::BatchFacts;

/// One run: what its work items share.
struct CompressedRun {
  const CompressedSetup& setup;
  const CpuCompressedPlan& plan;
  const dense::KernelRow& kernel;
  dense::Params window;
  dense::Params compressed;  ///< by the pages of compressed keys, or by lists of slots

  [[nodiscard]] std::int64_t states() const { return 1 + plan.num_parts; }

  void attend(const dense::Params& params, dense::Item item, std::int64_t partial_row,
              int thread) const {
    if (item.kv_begin >= item.kv_end) item.kv_begin = item.kv_end = 0;
    item.partial_row = partial_row;
    kernel.run(params, item, plan.parts.scratch + thread * plan.scratch_bytes);
  }

  /// State 0 of a block is its window's, the others are parts of its compressed keys.
  void attend_state(const CompressedBlock& block, std::int64_t state, std::int64_t partial_row,
                    int thread) const {
    if (state == 0) return attend(window, block.window, partial_row, thread);
    dense::Item item = block.compressed;
    if (setup.scores != nullptr) {
      item.shared = plan.selection.parts.kept[item.first_token];
      item.kv_end = item.shared.end;
    }
    item.kv_begin = (state - 1) * plan.part_keys;
    if (state < plan.num_parts) item.kv_end = std::min(item.kv_end, state * plan.part_keys);
    attend(compressed, item, partial_row, thread);
  }

  void merge(const CompressedBlock& block, std::int64_t first_row, int thread) const {
    const dense::Item& rows = block.window;
    const kernels::merge_states::Source source{.first_row = first_row,
                                               .token_stride = rows.num_heads,
                                               .part_stride = plan.block_heads,
                                               .num_parts = states()};
    auto* const sums = reinterpret_cast<float*>(plan.parts.scratch + thread * plan.scratch_bytes);
    kernels::merge_states::run(window,
                               {.first_token = rows.first_token,
                                .num_tokens = 1,
                                .first_head = rows.first_head,
                                .num_heads = rows.num_heads,
                                .num_sources = 1},
                               &source, sums);
  }

  /// A whole block in the thread's own rows.
  void run_block(std::int64_t n, int thread) const {
    const CompressedBlock& block = plan.blocks[static_cast<std::size_t>(n)];
    const std::int64_t first_row = thread * states() * plan.block_heads;
    for (std::int64_t state = 0; state < states(); ++state)
      attend_state(block, state, first_row + state * plan.block_heads, thread);
    merge(block, first_row, thread);
  }

  void run_state(std::int64_t n, int thread) const {
    attend_state(plan.blocks[static_cast<std::size_t>(n / states())], n % states(),
                 n * plan.block_heads, thread);
  }
  void merge_block(std::int64_t n, int thread) const {
    merge(plan.blocks[static_cast<std::size_t>(n)], n * states() * plan.block_heads, thread);
  }
};

class CpuCompressedBackend final : public CpuPlanned<CompressedSetup, CpuCompressedPlan> {
 public:
  using CpuPlanned::CpuPlanned;

  Status run(const Plan& plan, const LayerCall& call, Stream) override;

 private:
  [[nodiscard]] Status check(const BatchView& batch, const BatchFacts& facts) const override {
    if (batch.source == KvSource::ragged && batch.batch_size() > 0)
      return unsupported(base::join(descriptor_.name, " reads compressed keys from pages only"));
    if (setup_.scores == nullptr) return {};
    BatchFacts lists = facts;
    lists.max_page_id = facts.max_compressed_page_id;
    return check_kept_counts(descriptor_.name, lists, context_.spec, entries_of_page());
  }
  [[nodiscard]] std::int32_t entries_of_page() const {
    return context_.page_size / context_.spec.compress_ratio;
  }
  [[nodiscard]] dense::Params window_params(const CpuCompressedPlan& plan,
                                            const LayerCall& call) const;
  [[nodiscard]] dense::Params compressed_params(const CpuCompressedPlan& plan,
                                                const LayerCall& call) const;
};

dense::Params CpuCompressedBackend::window_params(const CpuCompressedPlan& plan,
                                                  const LayerCall& call) const {
  const AttentionSpec& spec = context_.spec;
  dense::Params p{
      .q = rows_of(call.q),
      .o = rows_of(call.o),
      .kv = paged_keys(call, context_.kv_layout, context_.page_size),
      .rows_alike = setup_.dense.batch_invariant,
      .head_dim_qk = spec.head_dim_qk,
      .head_dim_vo = spec.head_dim_vo,
      .gqa_group_size = spec.gqa_group_size(),
      .logit_scale = spec.sm_scale * call.q_scale,
      .sinks = call.sinks,
      .visible = plan.visible.data(),
      .partial_o = plan.parts.partial_o,
      .partial_lse = plan.parts.partial_lse,
      .scratch = decodes(spec, 1) ? decode_scratch(setup_.dense) : prefill_scratch(setup_.dense)};
  p.kv.indptr = plan.window_indptr.data();
  p.kv.indices = plan.window_indices.data();
  set_lse(call, p);
  return p;
}

dense::Params CpuCompressedBackend::compressed_params(const CpuCompressedPlan& plan,
                                                      const LayerCall& call) const {
  const TensorView& cache = call.compressed->cache;
  dense::Params p = window_params(plan, call);
  p.kv = {.k = cache.data,
          .v = cache.data,
          .k_page_stride = cache.stride[0],
          .k_token_stride = cache.stride[1],
          .v_page_stride = cache.stride[0],
          .v_token_stride = cache.stride[1],
          .page_size = entries_of_page()};
  p.kv.indptr = plan.selection.kv_indptr.data();
  p.kv.indices = plan.selection.kv_indices.data();
  p.visible = plan.seen.data();
  if (setup_.scores == nullptr) return p;
  p.kv.k_page_stride = p.kv.v_page_stride = cache.stride[1];
  p.kv.page_size = 1;
  p.kv.indptr = plan.selection.list_indptr.data();
  p.kv.indices = plan.selection.parts.slots;
  p.visible = plan.selection.parts.kept;
  return p;
}

Status CpuCompressedBackend::run(const Plan& plan, const LayerCall& call, Stream) {
  const auto& mine = static_cast<const CpuCompressedPlan&>(plan);
  if (Status s = attention::validate_run(call, mine.facts, context_.spec, context_.page_size,
                                         context_.kv_layout);
      !s.ok())
    return s;
  if (mine.blocks.empty()) return {};
  if (setup_.scores != nullptr) {
    if (mine.facts.max_compressed_page_id >= 0)
      if (Status s =
              check_pages_adjoin(descriptor_.name, call.compressed->cache, entries_of_page());
          !s.ok())
        return s;
    select_keys(context_.spec, *setup_.scores, mine.selection, *call.sparse, *executor_);
  }
  const CompressedRun run{
      .setup = setup_,
      .plan = mine,
      .kernel = decodes(context_.spec, 1) ? *setup_.dense.decode : *setup_.dense.prefill,
      .window = window_params(mine, call),
      .compressed = compressed_params(mine, call)};
  const auto blocks = static_cast<std::int64_t>(mine.blocks.size());
  if (mine.num_parts == 1) {
    for_each<&CompressedRun::run_block>(*executor_, blocks, run);
    return {};
  }
  for_each<&CompressedRun::run_state>(*executor_, blocks * run.states(), run);
  for_each<&CompressedRun::merge_block>(*executor_, blocks, run);
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_compressed(const BackendContext& context,
                                                     const BackendDescriptor& descriptor,
                                                     const SparseSetup& setup) {
  const AttentionSpec& spec = context.spec;
  if (Status s = attention::validate_compressed_pages(spec, context.page_size); !s.ok()) return s;
  if (spec.index_topk > 0 && setup.scores == nullptr)
    return unsupported(
        base::join(descriptor.name, " has no kernel for index keys in ", name(spec.index_dtype)));
  CompressedSetup mine{setup};
  if (spec.index_topk == 0) mine.scores = nullptr;
  return std::unique_ptr<Backend>(
      std::make_unique<CpuCompressedBackend>(context, descriptor, mine));
}

}  // namespace attune::backends::shared
