#include "backends/shared/cpu_backend.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include <attune/validate.hpp>

#include "backends/shared/cpu_block_sparse.hpp"
#include "backends/shared/cpu_compressed.hpp"
#include "backends/shared/cpu_planned.hpp"
#include "backends/shared/cpu_planner.hpp"
#include "backends/shared/cpu_run.hpp"
#include "backends/shared/cpu_sparse.hpp"
#include "backends/shared/dense_glue.hpp"
#include "base/join.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::backends::shared {
namespace {

namespace dense = kernels::dense;
using attention::BatchFacts;

class CpuBackend final : public CpuPlanned<Setup, CpuPlan> {
 public:
  using CpuPlanned::CpuPlanned;

  Status run(const Plan& plan, const LayerCall& call, Stream) override;

 private:
  [[nodiscard]] Status check(const BatchView& batch, const BatchFacts&) const override {
    if (!setup_.packed_latents || batch.source == KvSource::paged || batch.batch_size() == 0)
      return {};
    return unsupported(base::join(descriptor_.name, " reads mla_latent_fp8 from pages only"));
  }
  [[nodiscard]] attention::PagedKv keys_of(const CpuPlan& plan, const LayerCall& call) const;
  [[nodiscard]] dense::Params params_of(const CpuPlan& plan, const LayerCall& call) const;
};

attention::PagedKv CpuBackend::keys_of(const CpuPlan& plan, const LayerCall& call) const {
  const bool ragged = plan.facts.source == KvSource::ragged;
  attention::PagedKv kv = ragged ? ragged_keys(call, context_.spec.variant)
                                 : paged_keys(call, context_.kv_layout, context_.page_size);
  kv.indptr = plan.kv_indptr.data();
  if (!ragged) kv.indices = plan.kv_indices.data();
  return kv;
}

dense::Params CpuBackend::params_of(const CpuPlan& plan, const LayerCall& call) const {
  const AttentionSpec& spec = context_.spec;
  dense::Params p{.q = rows_of(call.q),
                  .o = rows_of(call.o),
                  .kv = keys_of(plan, call),
                  .packed_latents = setup_.packed_latents,
                  .rows_alike = setup_.batch_invariant,
                  .head_dim_qk = spec.head_dim_qk,
                  .head_dim_vo = spec.head_dim_vo,
                  .gqa_group_size = spec.gqa_group_size(),
                  .logit_scale = spec.sm_scale * call.q_scale,
                  .k_scale_per_head = call.k_scale_per_head,
                  .v_scale_per_head = call.v_scale_per_head,
                  .logits_soft_cap = spec.logits_soft_cap,
                  .sinks = call.sinks,
                  .alibi_slopes = call.alibi_slopes,
                  .visible = plan.visible.data(),
                  .key_position = plan.key_position.data(),
                  .temperature = plan.temperature.empty() ? nullptr : plan.temperature.data(),
                  .partial_o = plan.parts.partial_o,
                  .partial_lse = plan.parts.partial_lse,
                  .scratch = {}};
  if (call.k_scale_per_head == nullptr) p.logit_scale *= call.k_scale;
  if (call.v_scale_per_head == nullptr) p.v_scale = call.v_scale;
  set_lse(call, p);
  if (context_.spec.custom_mask) {
    p.custom_mask = plan.custom_mask.data();
    p.custom_mask_indptr = plan.custom_mask_indptr.data();
  }
  p.block_mask = plan.block_mask();
  if (context_.spec.score_mod) {
    p.score_mod = &call.score_mod;
    p.first_position = plan.first_position.data();
  }
  return p;
}

Status CpuBackend::run(const Plan& plan, const LayerCall& call, Stream) {
  const auto& mine = static_cast<const CpuPlan&>(plan);
  if (Status s = attention::validate_run(call, mine.facts, context_.spec, context_.page_size,
                                         context_.kv_layout);
      !s.ok())
    return s;
  run_plan(setup_, mine, params_of(mine, call), *executor_);
  return {};
}

/// What no kernel of ours serves, whatever its instruction set.
Status check_context(const BackendContext& context, const BackendDescriptor& descriptor) {
  const std::string_view me = descriptor.name;
  const bool reads_packed = std::ranges::any_of(descriptor.capabilities, [](const Capability& row) {
    return row.kv_layouts.contains(KvLayout::mla_latent_fp8);
  });
  const AttentionSpec& spec = context.spec;
  if (context.device.kind != DeviceKind::cpu)
    return unsupported(base::join(me, " runs on cpu, not on ", name(context.device.kind)));
  const bool served = std::ranges::any_of(descriptor.capabilities, [&](const Capability& row) {
    return row.variants.contains(spec.variant);
  });
  if (!served) return unsupported(base::join(me, " does not serve ", name(spec.variant)));
  if (spec.relative_bias)
    return unsupported(
        base::join(me, " adds no learned relative bias: the call has no tensor for it"));
  for (const auto& [asked, feature] :
       {std::pair(spec.block_mask, Feature::block_mask), {spec.score_mod, Feature::score_mod}}) {
    const bool declared = std::ranges::any_of(
        descriptor.capabilities, [&](const Capability& row) { return row.features.has(feature); });
    if (asked && !declared)
      return unsupported(base::join(me, " declares no ", name(feature), "; flex_attention does"));
  }
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.page_size < 1)
    return invalid_argument(base::join("page_size must be positive, have ", context.page_size));
  const bool latent = !tensor::stores_v_apart(context.kv_layout);
  const bool packed = context.kv_layout == KvLayout::mla_latent_fp8;
  if (latent != is_latent(spec.variant) || (packed && !reads_packed))
    return unsupported(base::join(me, " reads nhd and hnd for gqa and mla_latent",
                                  reads_packed ? " or mla_latent_fp8" : "", " for latents, not ",
                                  name(context.kv_layout), " for ", name(spec.variant)));
  if (packed &&
      (spec.head_dim_qk != 576 || spec.head_dim_vo != 512 || spec.kv_dtype != DType::fp8_e4m3))
    return unsupported(base::join("layout mla_latent_fp8 holds 512 + 64 columns in fp8_e4m3, not ",
                                  spec.head_dim_vo, " + ", spec.head_dim_qk - spec.head_dim_vo,
                                  " in ", name(spec.kv_dtype)));
  const auto is_float = [](DType t) {
    return t == DType::f32 || t == DType::bf16 || t == DType::f16;
  };
  if (!is_float(spec.q_dtype) || !is_float(spec.o_dtype))
    return unsupported(base::join(me, " wants q and o in fp32, bf16 or fp16, not ",
                                  name(spec.q_dtype), " and ", name(spec.o_dtype)));
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const BackendContext& context,
                                                  const BackendDescriptor& descriptor,
                                                  CpuKernels (*find)(const BackendContext&),
                                                  plan::CascadeMode cascade) {
  if (Status s = check_context(context, descriptor); !s.ok()) return s;
  const AttentionSpec& spec = context.spec;
  const CpuKernels kernels = find(context);
  if (kernels.decode == nullptr || kernels.prefill == nullptr)
    return unsupported(base::join(descriptor.name, " has no kernel for queries in ",
                                  name(spec.q_dtype), " and keys in ", name(spec.kv_dtype),
                                  " on a CPU of level ", name(context.device.isa)));
  const Setup setup{
      .spec = spec,
      .num_threads = context.executor != nullptr ? context.executor->num_threads() : 1,
      .batch_invariant = context.batch_invariant,
      .cascade = context.batch_invariant ? plan::CascadeMode::off : cascade,
      .packed_latents = context.kv_layout == KvLayout::mla_latent_fp8,
      .decode = kernels.decode,
      .prefill = kernels.prefill};
  if (spec.compress_ratio > 0)
    return make_cpu_compressed(context, descriptor, {.dense = setup, .scores = kernels.scores});
  if (spec.variant == Variant::minimax_sparse)
    return make_cpu_block_sparse(
        context, descriptor,
        {.dense = setup, .scores = kernels.block_scores, .page_size = context.page_size});
  if (spec.variant == Variant::sparse_mla)
    return make_cpu_sparse(context, descriptor, {.dense = setup, .scores = kernels.scores});
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(context, descriptor, setup));
}

}  // namespace attune::backends::shared
