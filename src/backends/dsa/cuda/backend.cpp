#include "backends/dsa/cuda/backend.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "attention/packed_latent.hpp"
#include "backends/dsa/cuda/checks.hpp"
#include "backends/dsa/cuda/plan.hpp"
#include "backends/dsa/descriptor.hpp"
#include "backends/shared/alignment.hpp"
#include "backends/shared/cuda/card.hpp"
#include "backends/shared/cuda/dense_glue.hpp"
#include "backends/shared/cuda/latent_params.hpp"
#include "backends/shared/cuda/latent_setup.hpp"
#include "backends/shared/cuda/selection.hpp"
#include "backends/shared/sparse_checks.hpp"
#include "base/join.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/append_kv/sm80/launch.hpp"

namespace attune::backends::dsa {
namespace {

namespace mla = kernels::mla_decode;
namespace append = kernels::append_kv::sm80;
using device::cuda::native;

class DsaBackend final : public Backend {
 public:
  DsaBackend(const BackendContext& context, shared::cuda::LatentSetup latent,
             shared::cuda::Selector selector)
      : context_(context), latent_(std::move(latent)), selector_(std::move(selector)) {
    context_.executor = nullptr;
  }

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return kDescriptor; }
  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override {
    return {.device_bytes = workspace_bytes(sizes_of(bounds))};
  }
  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override;
  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override;
  Status append_kv(const LayerCall& call, Stream stream) override;
  Status run(const Plan& plan, const LayerCall& call, Stream stream) override;

 private:
  [[nodiscard]] Sizes sizes_of(const BatchBounds& bounds) const {
    return {.rules = latent_.rules,
            .limits = plan::latent_limits(latent_.rules, bounds.max_qo_tokens),
            .tokens = bounds.max_qo_tokens,
            .topk = context_.spec.index_topk,
            .dim_vo = context_.spec.head_dim_vo,
            .max_kv_len = bounds.max_kv_len,
            .kv_entries = bounds.max_kv_entries,
            .scores = shared::cuda::room_for_scores(bounds.max_qo_tokens, bounds.max_kv_len),
            .score_blocks = selector_.score_blocks()};
  }
  /// Whether latents are those of the fp8 cache, 656 bytes a token.
  [[nodiscard]] bool packed() const { return context_.kv_layout == KvLayout::mla_latent_fp8; }
  [[nodiscard]] Result<attention::BatchFacts> facts_of(const BatchView& batch) const;
  [[nodiscard]] Status fill(DsaPlan& plan, const BatchView& batch, bool first, Stream stream) const;
  void begin_selection(DsaPlan& plan) const;
  [[nodiscard]] mla::Params params_of(const DsaPlan& plan, const LayerCall& call) const;

  BackendContext context_;
  shared::cuda::LatentSetup latent_;
  shared::cuda::Selector selector_;
};

Result<attention::BatchFacts> DsaBackend::facts_of(const BatchView& batch) const {
  if (batch.source != KvSource::paged && batch.batch_size() > 0)
    return unsupported("dsa reads latents from pages only");
  auto facts = attention::validate_batch(batch, context_.spec, context_.page_size);
  if (!facts.ok()) return facts;
  if (Status s =
          shared::check_kept_counts(kDescriptor.name, *facts, context_.spec, context_.page_size);
      !s.ok())
    return s;
  return facts;
}

Status DsaBackend::fill(DsaPlan& plan, const BatchView& batch, bool first, Stream stream) const {
  if (Status s = make_image(batch, first, plan); !s.ok()) return s;
  return device::cuda::copy_to_device(plan.image.place(), plan.image.data(), plan.image.bytes(),
                                      stream, "dsa: copying a plan to the device");
}

Result<PlanHandle> DsaBackend::plan(const BatchView& batch, const Workspace& workspace,
                                    Stream stream) {
  auto facts = facts_of(batch);
  if (!facts.ok()) return facts.status();
  auto made = std::make_unique<DsaPlan>();
  made->facts = *facts;
  made->sizes = sizes_of(attention::bounds_of(batch));
  const std::size_t wanted = workspace_bytes(made->sizes);
  if (Status s = shared::cuda::check_workspace(workspace, wanted); !s.ok()) return s;
  // What the caller gave beyond this batch's needs is room for longer requests: a key more is a
  // score a row and at most a page id a token.
  constexpr std::int64_t kAlignments = 2 * 64;
  const std::int64_t spare = std::max<std::int64_t>(
      0, static_cast<std::int64_t>(workspace.device_bytes - wanted) - kAlignments);
  const std::int64_t rows = made->sizes.score_rows();
  const std::int64_t more = spare / (4 * (rows + std::max<std::int64_t>(1, made->sizes.tokens)));
  made->sizes.max_kv_len += more;
  made->sizes.scores = std::min(rows, made->sizes.tokens) * made->sizes.max_kv_len;
  made->sizes.kv_entries += more * made->sizes.tokens;
  made->parts = lay_out(workspace.device, made->sizes);
  begin_selection(*made);
  if (Status s = fill(*made, batch, true, stream); !s.ok()) return s;
  return PlanHandle(std::move(made));
}

Status DsaBackend::refresh(Plan& plan, const BatchView& batch, Stream stream) {
  auto& mine = static_cast<DsaPlan&>(plan);
  auto facts = facts_of(batch);
  if (!facts.ok()) return facts.status();
  if (Status s = shared::cuda::check_refresh(mine.facts, *facts); !s.ok()) return s;
  if (Status s = fill(mine, batch, false, stream); !s.ok()) return s;
  mine.facts = *facts;
  return {};
}

Status DsaBackend::append_kv(const LayerCall& call, Stream stream) {
  const AttentionSpec& spec = context_.spec;
  if (Status s = attention::validate_append(call, spec, context_.page_size, context_.kv_layout);
      !s.ok())
    return s;
  const append::Params latents = shared::cuda::latent_append(
      call, call.k, call.k_cache, spec.head_dim_qk, call.k_scale, context_.page_size);
  if (Status s = packed() ? append::launch_packed(latents, native(stream))
                          : append::launch(latents, native(stream));
      !s.ok())
    return s;
  if (call.sparse == nullptr || !call.sparse->index_k.defined()) return {};
  return append::launch(
      shared::cuda::latent_append(call, call.sparse->index_k, call.sparse->index_cache,
                                  spec.index_head_dim, 1.0f, context_.page_size),
      native(stream));
}

void DsaBackend::begin_selection(DsaPlan& plan) const {
  plan.selection = {.tokens = plan.sizes.tokens,
                    .max_keys = plan.sizes.max_kv_len,
                    .page_size = context_.page_size,
                    .parts = plan.parts,
                    .kv_indices = plan.parts.kv_indices,
                    .slots = plan.parts.slots,
                    .slots_stride = context_.spec.index_topk,
                    .kept = plan.parts.kept};
  selector_.begin(std::max<std::int64_t>(1, plan.facts.max_qo_len), plan.sizes.score_rows(),
                  plan.selection);
}

mla::Params DsaBackend::params_of(const DsaPlan& plan, const LayerCall& call) const {
  const AttentionSpec& spec = context_.spec;
  const bool keyless = !call.k_cache.defined();
  mla::Params p = shared::cuda::latent_params(spec, plan.facts, plan.shape, call);
  p.k = keyless ? call.q.data : call.k_cache.data;
  // Kept keys are read by slot, as pages of one token.
  p.num_pages = keyless ? 1 : call.k_cache.shape[0] * context_.page_size;
  const std::int64_t token = packed() ? attention::packed_latent::kTokenBytes : spec.head_dim_qk;
  p.k_token_stride = keyless ? token : call.k_cache.stride[1];
  p.k_page_stride = p.k_token_stride;
  p.page_size = 1;
  p.causal = 0;  // lists hold visible keys alone
  p.lengths = plan.parts.kept;
  p.kv_indices = plan.parts.slots;
  shared::cuda::set_work(plan.parts, p);
  return p;
}

Status DsaBackend::run(const Plan& plan, const LayerCall& call, Stream stream) {
  const auto& mine = static_cast<const DsaPlan&>(plan);
  if (Status s = attention::validate_run(call, mine.facts, context_.spec, context_.page_size,
                                         context_.kv_layout);
      !s.ok())
    return s;
  if (call.q_scale <= 0)
    return invalid_argument(base::join("dsa wants a positive q_scale, have ", call.q_scale));
  if (mine.facts.num_qo_tokens == 0) return {};
  if (Status s = shared::check_alignment("q", call.q); !s.ok()) return s;
  if (Status s = shared::check_alignment("o", call.o); !s.ok()) return s;
  if (Status s = shared::check_alignment("the latent cache", call.k_cache); !s.ok()) return s;
  if (Status s = shared::check_pages_adjoin(kDescriptor.name, call.k_cache, context_.page_size);
      !s.ok())
    return s;
  if (Status s = shared::cuda::Selector::check_call(mine.selection, *call.sparse); !s.ok())
    return s;
  if (Status s = selector_.select(mine.selection, *call.sparse, stream); !s.ok()) return s;
  const mla::Params p = params_of(mine, call);
  return latent_.launch(shared::cuda::grid_of(latent_, mine.sizes.limits, mine.shape, p), p,
                        native(stream));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  if (Status s = check_context(context); !s.ok()) return s;
  const auto card = shared::cuda::enter_hopper(kDescriptor.name, context);
  if (!card.ok()) return card.status();
  auto selector = shared::cuda::Selector::make(context.spec, card->num_sms);
  if (!selector.ok()) return selector.status();
  auto latent = shared::cuda::latent_setup(context, *card, shared::cuda::LatentKeys::lists);
  if (!latent.ok()) return latent.status();
  return std::unique_ptr<Backend>(
      std::make_unique<DsaBackend>(context, std::move(*latent), std::move(*selector)));
}

}  // namespace attune::backends::dsa
