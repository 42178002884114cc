#include "backends/shared/cuda/paged_attention.hpp"

#include <bit>
#include <utility>

#include <attune/descriptor.hpp>
#include <attune/validate.hpp>

#include "backends/shared/alignment.hpp"
#include "backends/shared/cuda/cache_keys.hpp"
#include "backends/shared/cuda/dense_glue.hpp"
#include "backends/shared/cuda/outputs.hpp"
#include "backends/shared/cuda/paged_decode_run.hpp"
#include "backends/shared/cuda/paged_planner.hpp"
#include "backends/shared/cuda/paged_setup.hpp"
#include "backends/shared/cuda/tile_operands.hpp"
#include "base/join.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/usable_sms.hpp"
#include "kernels/merge_states/sm80/launch.hpp"

namespace attune::backends::shared {
namespace {

using paged::PagedPlan;
using paged::Setup;

namespace decode = kernels::paged_decode::sm80;
namespace prefill = kernels::ragged_prefill::sm80;
namespace levels = kernels::ragged_prefill::sm90;
namespace merge_states = kernels::merge_states::sm80;
using device::cuda::native;

/// Own keys and levels write states; the merge does what is done once a row.
template <class Params>
void aim_at_states(const AttentionSpec& spec, const paged::Parts& parts, Params& p) {
  using Element = decltype(p.o_element);
  p.o = parts.state_o;
  p.o_element = Element::f32;
  p.o_head_stride = spec.head_dim_vo;
  p.o_token_stride = static_cast<std::int64_t>(spec.num_qo_heads) * spec.head_dim_vo;
  p.lse = parts.state_lse;
  p.lse_head_stride = 1;
  p.lse_token_stride = spec.num_qo_heads;
  p.v_scale = 1.0f;
  p.v_scale_per_head = nullptr;
  p.sinks = nullptr;
}

/// Levels are items of the general prefill kernel.
bool general_levels(const PagedPlan& plan) { return plan.cascades && !plan.tiled; }

bool prefills(const PagedPlan& plan) {
  return general_levels(plan) || plan.prefill.work.num_items > 0 || !plan.schedule.tiles.empty();
}

class PagedBackend final : public Backend {
 public:
  PagedBackend(const BackendContext& context, const Setup& setup)
      : context_(context), setup_(setup) {
    context_.executor = nullptr;
  }

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return *setup_.descriptor; }

  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override {
    return {.device_bytes = workspace_bytes(setup_, sizes_of(setup_, bounds))};
  }

  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override;
  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override;
  Status append_kv(const LayerCall& call, Stream stream) override {
    return cuda::append_kv(call, context_, stream);
  }
  Status run(const Plan& plan, const LayerCall& call, Stream stream) override;

 private:
  [[nodiscard]] Result<attention::BatchFacts> check(const BatchView& batch) const;
  Status refresh_on_device(PagedPlan& plan, const BatchView& batch, Stream stream);
  Status run_levels(const PagedPlan& plan, const LayerCall& call, Stream stream) const;
  Status run_prefill(const PagedPlan& plan, const LayerCall& call, Stream stream) const;
  Status merge(const PagedPlan& plan, const LayerCall& call, Stream stream) const;
  [[nodiscard]] attention::PagedKv keys_of(const PagedPlan& plan, const LayerCall& call) const;

  BackendContext context_;
  Setup setup_;
};

Result<attention::BatchFacts> PagedBackend::check(const BatchView& batch) const {
  return batch.on_device.given() && setup_.plans_on_device
             ? attention::validate_device_batch(batch, context_.spec, context_.page_size)
             : attention::validate_batch(batch, context_.spec, context_.page_size);
}

Result<PlanHandle> PagedBackend::plan(const BatchView& batch, const Workspace& workspace,
                                      Stream stream) {
  auto facts = check(batch);
  if (!facts.ok()) return facts.status();
  auto made = std::make_unique<PagedPlan>();
  made->facts = *facts;
  made->workspace = workspace;
  made->usable = device::cuda::usable_sms(stream, setup_.num_sms);
  made->sizes = sizes_of(setup_, attention::bounds_of(batch));
  const std::size_t wanted = workspace_bytes(setup_, made->sizes);
  if (Status s = cuda::check_workspace(workspace, wanted); !s.ok()) return s;
  // Page ids come last: what the caller gave beyond this batch's needs is room for longer ones.
  made->sizes.kv_entries +=
      static_cast<std::int64_t>((workspace.device_bytes - wanted) / sizeof(std::int32_t));
  made->parts = parts_of(setup_, made->sizes, workspace.device);
  if (Status s = paged::empty_mailboxes(*made, stream); !s.ok()) return s;
  if (batch.on_device.given()) {
    made->decodes = facts->num_qo_tokens > 0;
    if (Status s = paged::zero_counters(*made, stream); !s.ok()) return s;
    if (Status s = list_on_device(setup_, facts->batch_size, batch.on_device, *made, stream);
        !s.ok())
      return s;
    return PlanHandle(std::move(made));
  }
  if (Status s = make_lists(setup_, batch, true, *made); !s.ok()) return s;
  made->decodes = made->decode.work.num_items > 0;
  made->prefills = prefills(*made);
  if (Status s = paged::upload(*made, stream); !s.ok()) return s;
  return PlanHandle(std::move(made));
}

Status PagedBackend::refresh(Plan& plan, const BatchView& batch, Stream stream) {
  auto& mine = static_cast<PagedPlan&>(plan);
  auto facts = check(batch);
  if (!facts.ok()) return facts.status();
  if (Status s = cuda::check_refresh(mine.facts, *facts); !s.ok()) return s;
  if (batch.on_device.given() != mine.tables.given())
    return invalid_argument(
        base::join("refresh wants the page tables where the plan had them, on the ",
                   mine.tables.given() ? "device" : "host", ": make a new plan"));
  if (mine.tables.given()) return refresh_on_device(mine, batch, stream);
  if (Status s = make_lists(setup_, batch, false, mine); !s.ok()) return s;
  if ((mine.decode.work.num_items > 0) != mine.decodes || prefills(mine) != mine.prefills)
    return invalid_argument("refresh wants the plan's mix of prefill and decode: make a new plan");
  mine.facts = *facts;
  return paged::upload(mine, stream);
}

Status PagedBackend::refresh_on_device(PagedPlan& plan, const BatchView& batch, Stream stream) {
  const DeviceTables& now = batch.on_device;
  if (now.kv_indices != plan.tables.kv_indices)
    return invalid_argument(
        "recorded runs read page ids where the plan had them: refresh with the same kv_indices");
  if (now.max_kv_entries > plan.tables.max_kv_entries || now.max_kv_len > plan.tables.max_kv_len)
    return invalid_argument(base::join("the plan was made for ", plan.tables.max_kv_entries,
                                       " entries and requests of ", plan.tables.max_kv_len,
                                       " keys, the batch may have ", now.max_kv_entries, " and ",
                                       now.max_kv_len, ": make a new plan"));
  return list_on_device(setup_, plan.facts.batch_size, now, plan, stream);
}

attention::PagedKv PagedBackend::keys_of(const PagedPlan& plan, const LayerCall& call) const {
  if (plan.facts.source == KvSource::ragged) return cuda::ragged_keys(call);
  attention::PagedKv kv = cuda::cache_keys(call, context_.kv_layout, context_.page_size);
  kv.indices = plan.tables.given() ? plan.tables.kv_indices : plan.parts.kv_indices;
  return kv;
}

Status PagedBackend::run_levels(const PagedPlan& plan, const LayerCall& call, Stream stream) const {
  const AttentionSpec& spec = context_.spec;
  levels::Params p;
  p.o = plan.parts.state_o;
  p.o_token_stride = static_cast<std::int64_t>(spec.num_qo_heads) * spec.head_dim_vo;
  p.o_head_stride = spec.head_dim_vo;
  p.lse = plan.parts.state_lse;
  p.lse_token_stride = spec.num_qo_heads;
  p.lse_head_stride = 1;
  p.list = plan.parts.level_work;
  p.items = plan.parts.level_items;
  p.kv_indices = plan.parts.kv_indices;
  p.page = base::FastDivisor(static_cast<std::uint32_t>(context_.page_size));
  p.box_rows = levels::box_rows(*setup_.level, context_.page_size, false);
  cuda::set_keys(keys_of(plan, call), p);
  p.group = spec.gqa_group_size();
  p.pack_shift = std::bit_width(static_cast<unsigned>(spec.gqa_group_size() - 1));
  p.scale = spec.sm_scale * call.q_scale * call.k_scale;
  p.soft_cap = spec.logits_soft_cap;
  const levels::Operands operands = cuda::tile_operands(call, spec, plan.facts.num_qo_tokens,
                                                        call.k_cache.shape[0], context_.page_size);
  return levels::launch(*setup_.level, setup_.encoder, plan.level_grid, operands, p,
                        native(stream));
}

Status PagedBackend::run_prefill(const PagedPlan& plan, const LayerCall& call,
                                 Stream stream) const {
  if (plan.prefill_choice.tiled)
    return setup_.prefill_kernels.tiler()->launch(
        plan.prefill_choice.tiles, plan.facts,
        {plan.parts.tile_work, plan.parts.tiles, plan.parts.kv_indices, plan.parts.rows,
         plan.sizes.max_rows, plan.parts.num_rows},
        call, stream);
  prefill::Params p;
  paged::fill_tensors(context_.spec, call, p);
  if (plan.cascades) aim_at_states(context_.spec, plan.parts, p);
  p.kv = keys_of(plan, call);
  p.group = base::FastDivisor(static_cast<std::uint32_t>(p.gqa_group_size));
  p.page = base::FastDivisor(static_cast<std::uint32_t>(p.kv.page_size));
  p.rules = plan.parts.rules;
  p.work = plan.parts.prefill_work;
  p.items = plan.parts.items;
  p.partial_o = plan.parts.prefill_o;
  p.partial_state = plan.parts.prefill_state;
  p.arrivals = plan.parts.prefill_arrivals;
  p.rule = setup_.rule;
  p.custom_mask = plan.parts.mask;
  if (context_.spec.block_mask) {
    p.blocks = plan.parts.blocks;
    p.block_heads = plan.block_heads;
    p.block_bits = plan.parts.block_bits;
  }
  p.xai_temperature_len = context_.spec.xai_temperature_len;
  return prefill::launch(*setup_.prefill, p, setup_.prefill_grid, native(stream));
}

Status PagedBackend::merge(const PagedPlan& plan, const LayerCall& call, Stream stream) const {
  const AttentionSpec& spec = context_.spec;
  merge_states::Params p;
  p.state_o = plan.parts.state_o;
  p.state_lse = plan.parts.state_lse;
  p.first = plan.parts.state_first;
  p.rows = plan.parts.states;
  p.num_tokens = plan.facts.num_qo_tokens;
  p.num_heads = spec.num_qo_heads;
  p.heads_per_kv_head = spec.gqa_group_size();
  p.head_dim = spec.head_dim_vo;
  p.o_dtype = call.o.dtype;
  cuda::set_outputs(call, p);
  p.v_scale = call.v_scale_per_head == nullptr ? call.v_scale : 1.0f;
  p.v_scale_per_head = call.v_scale_per_head;
  p.sinks = spec.sinks ? call.sinks : nullptr;
  p.counter = plan.beside ? plan.parts.counters : nullptr;
  return merge_states::launch(p, setup_.overlap, native(stream));
}

Status PagedBackend::run(const Plan& plan, const LayerCall& call, Stream stream) {
  const auto& mine = static_cast<const PagedPlan&>(plan);
  const AttentionSpec& spec = context_.spec;
  if (Status s =
          attention::validate_run(call, mine.facts, spec, context_.page_size, context_.kv_layout);
      !s.ok())
    return s;
  const bool ragged = mine.facts.source == KvSource::ragged;
  if (Status s = check_alignment("q", call.q); !s.ok()) return s;
  if (Status s = check_alignment("o", call.o); !s.ok()) return s;
  if (Status s = check_alignment("keys", ragged ? call.k : call.k_cache); !s.ok()) return s;
  if (Status s = check_alignment("values", ragged ? call.v : call.v_cache); !s.ok()) return s;

  if (mine.tiled)
    if (Status s = run_levels(mine, call, stream); !s.ok()) return s;
  if (mine.prefills)
    if (Status s = run_prefill(mine, call, stream); !s.ok()) return s;
  if (mine.decodes) {
    decode::Params p = paged::decode_params(setup_, mine, call);
    p.kv = keys_of(mine, call);
    p.listed_before = !mine.tables.given();
    if (mine.cascades) aim_at_states(spec, mine.parts, p);
    if (Status s = paged::launch_decode(setup_, mine, p, stream); !s.ok()) return s;
  }
  return mine.cascades ? merge(mine, call, stream) : Status{};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_paged_attention(const BackendContext& context,
                                                      const BackendDescriptor& descriptor,
                                                      const PagedOptions& options) {
  auto setup = paged::make_setup(context, descriptor, options);
  if (!setup.ok()) return setup.status();
  return std::unique_ptr<Backend>(std::make_unique<PagedBackend>(context, *setup));
}

}  // namespace attune::backends::shared
