// The oracle: softmax attention in double precision, by obvious loops, exactly as the head of
// <attune/spec.hpp> states it. Nothing here is fast; every other backend is held to it, and it is
// itself held to tests/golden and to hand-worked cases.
#include <cstddef>
#include <memory>

#include <attune/backend.hpp>
#include <attune/compressed_call.hpp>
#include <attune/descriptor.hpp>
#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "attention/validate_compressed.hpp"
#include "backends/reference/batch_arrays.hpp"
#include "backends/reference/descriptor.hpp"
#include "backends/reference/indexer.hpp"
#include "backends/reference/kv_rows.hpp"
#include "backends/reference/run.hpp"
#include "backends/reference/slices.hpp"
#include "backends/shared/dense_glue.hpp"
#include "backends/shared/linear_backend.hpp"
#include "base/join.hpp"

namespace attune::backends::reference {
namespace {

using attention::BatchFacts;

KvRows compressed_rows(const LayerCall& call, bool ragged) {
  return vector_rows(ragged ? call.compressed->k : call.compressed->cache, ragged);
}

class ReferencePlan final : public Plan {
 public:
  ReferencePlan(BatchArrays batch, const Workspace& workspace)
      : arrays(std::move(batch)), workspace_(workspace) {}

  BatchArrays arrays;

  [[nodiscard]] const Workspace& workspace() const { return workspace_; }

 private:
  Workspace workspace_;
};

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(const BackendContext& context) : context_(context) {}

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return kDescriptor; }

  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override {
    if (bounds.max_qo_tokens == 0) return {};
    const std::int64_t doubles =
        num_threads() * thread_doubles(context_.spec, lengths_of(context_.spec, bounds));
    return {.device_bytes = static_cast<std::size_t>(doubles) * sizeof(double)};
  }

  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace, Stream) override {
    const auto facts = check(batch, workspace);
    if (!facts.ok()) return facts.status();
    return PlanHandle(std::make_unique<ReferencePlan>(BatchArrays(batch, *facts), workspace));
  }

  Status refresh(Plan& plan, const BatchView& batch, Stream) override {
    auto& mine = static_cast<ReferencePlan&>(plan);
    const auto facts = check(batch, mine.workspace());
    if (!facts.ok()) return facts.status();
    mine.arrays = BatchArrays(batch, *facts);
    return {};
  }

  Status append_kv(const LayerCall& call, Stream) override {
    const AttentionSpec& spec = context_.spec;
    if (Status s = attention::validate_append(call, spec, context_.page_size, context_.kv_layout);
        !s.ok())
      return s;
    if (call.slot_mapping.empty()) return {};
    const std::int64_t slots = call.k_cache.shape[0] * context_.page_size;
    if (Status s = attention::validate_slots(call.slot_mapping, slots); !s.ok()) return s;
    const KvRows k = key_rows(call, spec, context_.kv_layout);
    const KvRows v = value_rows(call, spec, context_.kv_layout);
    if (is_compressed(spec))
      if (Status s = append_compressed(call); !s.ok()) return s;
    const bool indexes =
        !is_compressed(spec) && call.sparse != nullptr && call.sparse->index_k.defined();
    for (std::size_t n = 0; n < call.slot_mapping.size(); ++n) {
      const std::int64_t slot = call.slot_mapping[n];
      if (slot < 0) continue;
      const auto token = static_cast<std::int64_t>(n);
      if (indexes) index_rows(call, false).write(slot, 0, call.sparse->index_k, token, 1.0);
      for (int h = 0; h < spec.num_kv_heads; ++h) {
        const double k_scale =
            call.k_scale_per_head != nullptr ? call.k_scale_per_head[h] : call.k_scale;
        const double v_scale =
            call.v_scale_per_head != nullptr ? call.v_scale_per_head[h] : call.v_scale;
        k.write(slot, h, call.k, token, k_scale);
        if (tensor::stores_v_apart(context_.kv_layout)) v.write(slot, h, call.v, token, v_scale);
      }
    }
    return {};
  }

  Status run(const Plan& plan, const LayerCall& call, Stream) override {
    const auto& mine = static_cast<const ReferencePlan&>(plan);
    const BatchArrays& batch = mine.arrays;
    const AttentionSpec& spec = context_.spec;
    if (Status s = attention::validate_run(call, batch.facts, spec, context_.page_size,
                                           context_.kv_layout);
        !s.ok())
      return s;
    const bool ragged = batch.facts.source == KvSource::ragged;
    const Run run{
        .spec = spec,
        .batch = batch,
        .call = call,
        .workspace = mine.workspace(),
        .k = ragged ? ragged_key_rows(call, spec) : key_rows(call, spec, context_.kv_layout),
        .v = ragged ? ragged_value_rows(call, spec) : value_rows(call, spec, context_.kv_layout),
        .compressed = is_compressed(spec) ? compressed_rows(call, ragged) : KvRows{}};
    const std::int64_t tokens = batch.facts.num_qo_tokens;
    if (has_indexer(spec) && call.sparse->index_q.defined())
      for_each(tokens, run, [](const Run& shared, std::int64_t token, int thread) {
        shared.choose(token, thread);
      });
    for_each(tokens * spec.num_qo_heads, run, [](const Run& shared, std::int64_t item, int thread) {
      const std::int64_t heads = shared.spec.num_qo_heads;
      shared.compute(item / heads, item % heads, thread);
    });
    return {};
  }

 private:
  /// Of tokens that end a window alone.
  [[nodiscard]] Status append_compressed(const LayerCall& call) const {
    const CompressedCall& compressed = *call.compressed;
    const std::int64_t ratio = context_.spec.compress_ratio;
    if (Status s = attention::validate_slots(compressed.slot_mapping,
                                             compressed.cache.shape[0] * context_.page_size);
        !s.ok())
      return s;
    const bool indexes = call.sparse != nullptr && call.sparse->index_k.defined();
    for (std::size_t n = 0; n < compressed.slot_mapping.size(); ++n) {
      const std::int64_t slot = compressed.slot_mapping[n];
      if (slot < 0 || slot % ratio != ratio - 1) continue;
      const auto token = static_cast<std::int64_t>(n);
      compressed_rows(call, false).write(slot / ratio, 0, compressed.k, token, 1.0);
      if (indexes) index_rows(call, false).write(slot / ratio, 0, call.sparse->index_k, token, 1.0);
    }
    return {};
  }

  void for_each(std::int64_t items, const Run& run, void (*act)(const Run&, std::int64_t, int)) {
    if (context_.executor == nullptr) {
      for (std::int64_t item = 0; item < items; ++item) act(run, item, 0);
      return;
    }
    struct Work {
      const Run& run;
      void (*act)(const Run&, std::int64_t, int);
    } work{run, act};
    context_.executor->run(
        items,
        [](void* context, std::int64_t item, int thread) {
          const Work& w = *static_cast<const Work*>(context);
          w.act(w.run, item, thread);
        },
        &work);
  }

  [[nodiscard]] std::int64_t num_threads() const {
    return context_.executor != nullptr ? context_.executor->num_threads() : 1;
  }

  [[nodiscard]] Result<BatchFacts> check(const BatchView& batch, const Workspace& workspace) const {
    auto facts = attention::validate_batch(batch, context_.spec, context_.page_size);
    if (!facts.ok()) return facts;
    const std::size_t wanted = workspace_size(attention::bounds_of(batch)).device_bytes;
    if (Status s = shared::check_workspace(workspace, wanted); !s.ok()) return s;
    return facts;
  }

  BackendContext context_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  const AttentionSpec& spec = context.spec;
  if (context.device.kind != DeviceKind::cpu)
    return unsupported(base::join("reference runs on cpu, not on ", name(context.device.kind)));
  if (is_linear(spec.variant))
    return shared::make_linear(kDescriptor, context, shared::LinearKernels::reference);
  if (!is_dense(spec.variant))
    return unsupported(base::join("reference does not serve ", name(spec.variant)));
  if (spec.relative_bias)
    return unsupported("reference adds no learned relative bias: the call has no tensor for it");
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.page_size < 1)
    return invalid_argument(base::join("page_size must be positive, have ", context.page_size));
  const bool latent = !tensor::stores_v_apart(context.kv_layout);
  if (latent != is_latent(spec.variant))
    return unsupported(base::join("layout ", name(context.kv_layout), " does not hold ",
                                  name(spec.variant), " keys"));
  if (context.kv_layout == KvLayout::mla_latent_fp8 &&
      (spec.kv_lora_rank != 512 || spec.qk_rope_head_dim != 64))
    return unsupported(base::join("layout mla_latent_fp8 is 512 + 64 wide, not ", spec.kv_lora_rank,
                                  " + ", spec.qk_rope_head_dim));
  if (Status s = attention::validate_compressed_pages(spec, context.page_size); !s.ok()) return s;
  return std::unique_ptr<Backend>(std::make_unique<ReferenceBackend>(context));
}

}  // namespace attune::backends::reference
