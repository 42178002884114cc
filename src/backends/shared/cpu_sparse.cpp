#include "backends/shared/cpu_sparse.hpp"

#include <algorithm>
#include <cstdint>

#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "backends/shared/cpu_blocks.hpp"
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
struct SparseRun {
  const SparseSetup& setup;
  const CpuSparsePlan& plan;
  dense::Params params;  ///< over slots, as pages of one token

  void attend(std::int64_t n, int thread) const {
    dense::Item item = plan.work.items[static_cast<std::size_t>(n)];
    const attention::KeyRange kept = plan.selection.parts.kept[item.first_token];
    item.kv_begin = std::min(item.kv_begin, kept.end);
    item.kv_end = std::min(item.kv_end, kept.end);
    if (item.kv_begin >= item.kv_end) item.kv_begin = item.kv_end = 0;
    item.kv_len = kept.end;
    item.shared = kept;
    void* const scratch = plan.parts.scratch + thread * plan.scratch_bytes;
    const dense::KernelRow& kernel =
        decodes(setup.dense.spec, 1) ? *setup.dense.decode : *setup.dense.prefill;
    kernel.run(params, item, scratch);
  }

  void merge(std::int64_t n, int thread) const {
    auto* const sums = reinterpret_cast<float*>(plan.parts.scratch + thread * plan.scratch_bytes);
    kernels::merge_states::run(params, plan.work.merges[static_cast<std::size_t>(n)],
                               plan.work.sources.data(), sums);
  }
};

class CpuSparseBackend final : public CpuPlanned<SparseSetup, CpuSparsePlan> {
 public:
  using CpuPlanned::CpuPlanned;

  Status run(const Plan& plan, const LayerCall& call, Stream) override;

 private:
  [[nodiscard]] Status check(const BatchView& batch, const BatchFacts& facts) const override {
    if (setup_.dense.packed_latents && batch.source != KvSource::paged && batch.batch_size() > 0)
      return unsupported(base::join(descriptor_.name, " reads mla_latent_fp8 from pages only"));
    return check_kept_counts(descriptor_.name, facts, context_.spec, context_.page_size);
  }
  [[nodiscard]] dense::Params params_of(const CpuSparsePlan& plan, const LayerCall& call) const;
};

dense::Params CpuSparseBackend::params_of(const CpuSparsePlan& plan, const LayerCall& call) const {
  const AttentionSpec& spec = context_.spec;
  attention::PagedKv kv = plan.facts.source == KvSource::ragged
                              ? ragged_keys(call, spec.variant)
                              : paged_keys(call, context_.kv_layout, context_.page_size);
  if (plan.facts.source == KvSource::paged) {
    kv.k_page_stride = kv.k_token_stride;
    kv.v_page_stride = kv.v_token_stride;
  }
  kv.page_size = 1;
  kv.indptr = plan.selection.list_indptr.data();
  kv.indices = plan.selection.parts.slots;
  dense::Params p{
      .q = rows_of(call.q),
      .o = rows_of(call.o),
      .kv = kv,
      .packed_latents = setup_.dense.packed_latents,
      .head_dim_qk = spec.head_dim_qk,
      .head_dim_vo = spec.head_dim_vo,
      .gqa_group_size = spec.gqa_group_size(),
      .logit_scale = spec.sm_scale * call.q_scale * call.k_scale,
      .v_scale = call.v_scale,
      .visible = plan.selection.parts.kept,
      .partial_o = plan.parts.partial_o,
      .partial_lse = plan.parts.partial_lse,
      .scratch = decodes(spec, 1) ? decode_scratch(setup_.dense) : prefill_scratch(setup_.dense)};
  set_lse(call, p);
  return p;
}

Status CpuSparseBackend::run(const Plan& plan, const LayerCall& call, Stream) {
  const auto& mine = static_cast<const CpuSparsePlan&>(plan);
  if (Status s = attention::validate_run(call, mine.facts, context_.spec, context_.page_size,
                                         context_.kv_layout);
      !s.ok())
    return s;
  const std::int64_t tokens = mine.facts.num_qo_tokens;
  if (tokens == 0) return {};
  const bool paged = mine.facts.source == KvSource::paged && mine.facts.max_page_id >= 0;
  if (paged)
    if (Status s = check_pages_adjoin(descriptor_.name, call.k_cache, context_.page_size); !s.ok())
      return s;
  select_keys(context_.spec, *setup_.scores, mine.selection, *call.sparse, *executor_);
  const SparseRun run{.setup = setup_, .plan = mine, .params = params_of(mine, call)};
  for_each<&SparseRun::attend>(*executor_, static_cast<std::int64_t>(mine.work.items.size()), run);
  for_each<&SparseRun::merge>(*executor_, static_cast<std::int64_t>(mine.work.merges.size()), run);
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_sparse(const BackendContext& context,
                                                 const BackendDescriptor& descriptor,
                                                 const SparseSetup& setup) {
  if (setup.scores == nullptr)
    return unsupported(base::join(descriptor.name, " has no kernel for index keys in ",
                                  name(context.spec.index_dtype)));
  return std::unique_ptr<Backend>(std::make_unique<CpuSparseBackend>(context, descriptor, setup));
}

}  // namespace attune::backends::shared
