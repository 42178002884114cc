#include "backends/shared/cuda/latent.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <attune/validate.hpp>

#include "attention/packed_latent.hpp"
#include "backends/shared/alignment.hpp"
#include "backends/shared/cuda/card.hpp"
#include "backends/shared/cuda/dense_glue.hpp"
#include "backends/shared/cuda/latent_params.hpp"
#include "backends/shared/cuda/latent_setup.hpp"
#include "backends/shared/cuda/latent_work.hpp"
#include "backends/shared/latent_checks.hpp"
#include "base/join.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/append_kv/sm80/launch.hpp"
#include "kernels/mla_decode/sm90/launch.hpp"
#include "plan/latent_work.hpp"
#include "plan/workspace.hpp"
#include "plan/workspace_image.hpp"

namespace attune::backends::shared {
namespace {

namespace mla = kernels::mla_decode;
namespace append = kernels::append_kv::sm80;
using device::cuda::native;

bool packed(const BackendContext& context) { return context.kv_layout == KvLayout::mla_latent_fp8; }

/// Places of a workspace, counted and handed out by the same lines. From `work` on it is a copy of
/// the plan's image; page ids come last.
struct Parts : cuda::LatentParts {
  std::int32_t* arrivals = nullptr;
  std::int32_t* kv_indices = nullptr;
};

Parts lay_out(plan::WorkspaceCutter& cut, const plan::LatentRules& rules, int dim_vo,
              const plan::LatentLimits& limits, std::int64_t kv_entries) {
  Parts parts;
  cuda::cut_partials(cut, rules, limits, dim_vo, parts);
  cuda::cut_lists(cut, rules, limits, parts);
  parts.arrivals = cut.take<std::int32_t>(limits.counters);
  parts.kv_indices = cut.take<std::int32_t>(kv_entries);
  return parts;
}

struct LatentPlan final : Plan {
  attention::BatchFacts facts;
  Parts parts;
  plan::LatentLimits limits;
  std::int64_t max_entries = 0;
  plan::LatentShape shape;
  plan::LatentList list;
  plan::WorkspaceImage image;
};

class LatentBackend final : public Backend {
 public:
  LatentBackend(const BackendContext& context, const BackendDescriptor& descriptor,
                cuda::LatentSetup setup)
      : context_(context), descriptor_(descriptor), setup_(std::move(setup)) {
    context_.executor = nullptr;
  }

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return descriptor_; }
  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override;
  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override;
  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override;
  Status append_kv(const LayerCall& call, Stream stream) override;
  Status run(const Plan& plan, const LayerCall& call, Stream stream) override;

 private:
  [[nodiscard]] Result<attention::BatchFacts> facts_of(const BatchView& batch) const;
  Status fill(LatentPlan& plan, const BatchView& batch, Stream stream) const;

  BackendContext context_;
  const BackendDescriptor& descriptor_;
  cuda::LatentSetup setup_;
};

WorkspaceSize LatentBackend::workspace_size(const BatchBounds& bounds) const {
  plan::WorkspaceCutter count;
  lay_out(count, setup_.rules, context_.spec.head_dim_vo,
          plan::latent_limits(setup_.rules, bounds.max_qo_tokens), bounds.max_kv_entries);
  return {.device_bytes = count.bytes()};
}

Result<attention::BatchFacts> LatentBackend::facts_of(const BatchView& batch) const {
  if (batch.source != KvSource::paged && batch.batch_size() > 0)
    return unsupported(base::join(descriptor_.name, " reads latents from pages only"));
  return attention::validate_batch(batch, context_.spec, context_.page_size);
}

Status LatentBackend::fill(LatentPlan& plan, const BatchView& batch, Stream stream) const {
  plan::list_latent_work(batch, setup_.rules, plan.shape, plan.list);
  const std::size_t entries = batch.kv_indices.size();
  if (Status s = cuda::check_room(plan.limits, plan.max_entries, plan.shape, plan.list, entries);
      !s.ok())
    return s;
  // The counters between the lists begin at zero.
  cuda::begin_image(plan.parts, plan.list, plan.parts.kv_indices + entries, plan.image);
  plan.image.put(plan.parts.kv_indices, batch.kv_indices);
  return device::cuda::copy_to_device(
      plan.image.place(), plan.image.data(), plan.image.bytes(), stream,
      base::join(descriptor_.name, ": copying a plan to the device"));
}

Result<PlanHandle> LatentBackend::plan(const BatchView& batch, const Workspace& workspace,
                                       Stream stream) {
  auto facts = facts_of(batch);
  if (!facts.ok()) return facts.status();
  const BatchBounds bounds = attention::bounds_of(batch);
  const std::size_t wanted = workspace_size(bounds).device_bytes;
  if (Status s = cuda::check_workspace(workspace, wanted); !s.ok()) return s;
  auto made = std::make_unique<LatentPlan>();
  made->facts = *facts;
  made->limits = plan::latent_limits(setup_.rules, bounds.max_qo_tokens);
  // What the caller gave beyond this batch's needs is room for more page ids.
  made->max_entries =
      bounds.max_kv_entries +
      static_cast<std::int64_t>((workspace.device_bytes - wanted) / sizeof(std::int32_t));
  plan::WorkspaceCutter cut(workspace.device);
  made->parts =
      lay_out(cut, setup_.rules, context_.spec.head_dim_vo, made->limits, made->max_entries);
  made->shape = plan::latent_shape(setup_.rules, batch);
  if (Status s = fill(*made, batch, stream); !s.ok()) return s;
  return PlanHandle(std::move(made));
}

Status LatentBackend::refresh(Plan& plan, const BatchView& batch, Stream stream) {
  auto& mine = static_cast<LatentPlan&>(plan);
  auto facts = facts_of(batch);
  if (!facts.ok()) return facts.status();
  if (Status s = cuda::check_refresh(mine.facts, *facts); !s.ok()) return s;
  if (Status s = fill(mine, batch, stream); !s.ok()) return s;
  mine.facts = *facts;
  return {};
}

Status LatentBackend::append_kv(const LayerCall& call, Stream stream) {
  const AttentionSpec& spec = context_.spec;
  if (Status s = attention::validate_append(call, spec, context_.page_size, context_.kv_layout);
      !s.ok())
    return s;
  const append::Params params = cuda::latent_append(call, call.k, call.k_cache, spec.head_dim_qk,
                                                    call.k_scale, context_.page_size);
  return packed(context_) ? append::launch_packed(params, native(stream))
                          : append::launch(params, native(stream));
}

Status LatentBackend::run(const Plan& plan, const LayerCall& call, Stream stream) {
  const auto& mine = static_cast<const LatentPlan&>(plan);
  const AttentionSpec& spec = context_.spec;
  if (Status s =
          attention::validate_run(call, mine.facts, spec, context_.page_size, context_.kv_layout);
      !s.ok())
    return s;
  if (call.q_scale <= 0)
    return invalid_argument(
        base::join(descriptor_.name, " wants a positive q_scale, have ", call.q_scale));
  if (mine.facts.num_qo_tokens == 0) return {};
  if (Status s = check_alignment("q", call.q); !s.ok()) return s;
  if (Status s = check_alignment("o", call.o); !s.ok()) return s;
  if (Status s = check_alignment("the latent cache", call.k_cache); !s.ok()) return s;
  // Without any page none is fetched, but the copy engine needs an address.
  const bool keyless = !call.k_cache.defined();
  mla::Params p = cuda::latent_params(spec, mine.facts, mine.shape, call);
  p.k = keyless ? call.q.data : call.k_cache.data;
  p.num_pages = keyless ? 1 : call.k_cache.shape[0];
  const std::int64_t token =
      packed(context_) ? attention::packed_latent::kTokenBytes : spec.head_dim_qk;
  p.k_page_stride = keyless ? context_.page_size * token : call.k_cache.stride[0];
  p.k_token_stride = keyless ? token : call.k_cache.stride[1];
  p.page_size = context_.page_size;
  p.causal = spec.causal ? 1 : 0;
  p.arrivals = mine.parts.arrivals;
  p.kv_indices = mine.parts.kv_indices;
  cuda::set_work(mine.parts, p);
  return setup_.launch(cuda::grid_of(setup_, mine.limits, mine.shape, p), p, native(stream));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_hopper_latent(const BackendContext& context,
                                                    const BackendDescriptor& descriptor) {
  if (Status s = check_latent_context(
          context, {.backend = descriptor.name,
                    .page_size = mla::sm90::kKeys,
                    .otherwise = ": name flashinfer, which reads any, or make pages of that size",
                    .packed = true,
                    .e4m3 = true});
      !s.ok())
    return s;
  const auto card = cuda::enter_hopper(descriptor.name, context);
  if (!card.ok()) return card.status();
  auto setup = cuda::latent_setup(context, *card, cuda::LatentKeys::pages);
  if (!setup.ok()) return setup.status();
  return std::unique_ptr<Backend>(
      std::make_unique<LatentBackend>(context, descriptor, std::move(*setup)));
}

Result<std::unique_ptr<Backend>> make_gather_latent(const BackendContext& context,
                                                    const BackendDescriptor& descriptor,
                                                    LatentWidths widths) {
  if (Status s = check_latent_context(
          context, {.backend = descriptor.name,
                    .max_columns = widths == LatentWidths::any ? mla::kDimQk : 0});
      !s.ok())
    return s;
  const auto card = cuda::enter_card(descriptor.name, context);
  if (!card.ok()) return card.status();
  auto setup = cuda::latent_setup(context, *card, cuda::LatentKeys::pages);
  if (!setup.ok()) return setup.status();
  return std::unique_ptr<Backend>(
      std::make_unique<LatentBackend>(context, descriptor, std::move(*setup)));
}

}  // namespace attune::backends::shared
