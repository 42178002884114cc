#include "backends/shared/cuda/hopper_prefill.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <attune/validate.hpp>

#include "backends/shared/cuda/dense_glue.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/status.hpp"
#include "plan/prefill_schedule.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared {
namespace {

namespace sm90 = kernels::ragged_prefill::sm90;
using device::cuda::native;
using device::cuda::status_of;

/// A kernel of this backend's dtype and head dims, ready on the device.
struct Ready {
  sm90::Instance instance;
  int blocks = 0;
};

struct Setup {
  std::vector<Ready> kernels;
  kernels::tensor_map::Encoder encoder = nullptr;
};

/// Offsets of a workspace, counted and handed out by the same lines.
struct Parts {
  sm90::WorkList* list = nullptr;
  sm90::WorkItem* items = nullptr;
  std::int32_t* kv_indices = nullptr;
};
Parts lay_out(plan::WorkspaceCutter& cut, std::int64_t max_items, std::int64_t kv_entries) {
  Parts parts;
  parts.list = cut.take<sm90::WorkList>(1);
  parts.items = cut.take<sm90::WorkItem>(max_items);
  parts.kv_indices = cut.take<std::int32_t>(kv_entries);
  return parts;
}

struct HopperPlan final : Plan {
  attention::BatchFacts facts;
  Workspace workspace;
  Parts parts;
  std::int64_t max_items = 0;
  std::int64_t max_entries = 0;
  const Ready* kernel = nullptr;
  int pack_shift = 0;
  std::vector<plan::PrefillTile> tiles;
  std::vector<std::byte> image;  ///< what the device's parts are a copy of
};

static_assert(sizeof(plan::PrefillTile) == sizeof(sm90::WorkItem));

std::int32_t window(std::int64_t keys) {
  constexpr std::int64_t kFar = std::int64_t{1} << 30;
  return keys < 0 ? -1 : static_cast<std::int32_t>(std::min(keys, kFar));
}

class HopperPrefill final : public Backend {
 public:
  HopperPrefill(const BackendContext& context, const BackendDescriptor& descriptor, Setup setup)
      : context_(context), descriptor_(descriptor), setup_(std::move(setup)) {
    context_.executor = nullptr;
  }

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return descriptor_; }
  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override;
  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override;
  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override;
  Status append_kv(const LayerCall& call, Stream stream) override {
    return cuda::append_kv(call, context_, stream);
  }
  Status run(const Plan& plan, const LayerCall& call, Stream stream) override;

 private:
  [[nodiscard]] plan::PrefillRules rules(const sm90::Instance& instance, int pack_shift) const;
  [[nodiscard]] std::int64_t max_items(std::int64_t batch, std::int64_t tokens) const;
  [[nodiscard]] bool serves(const sm90::Instance& instance, KvSource source) const;
  struct Choice {
    const Ready* kernel = nullptr;
    int pack_shift = 0;
  };
  [[nodiscard]] Choice choose(const BatchView& batch) const;
  [[nodiscard]] std::int64_t cycles(const Ready& kernel, int pack_shift,
                                    const BatchView& batch) const;
  Status fill(HopperPlan& plan, const BatchView& batch, Stream stream) const;

  BackendContext context_;
  const BackendDescriptor& descriptor_;
  Setup setup_;
};

plan::PrefillRules HopperPrefill::rules(const sm90::Instance& instance, int pack_shift) const {
  const AttentionSpec& spec = context_.spec;
  return {.tile_tokens = instance.query_tile >> pack_shift,
          .tile_heads = 1 << pack_shift,
          .key_tile = instance.key_tile,
          .num_qo_heads = spec.num_qo_heads,
          .num_kv_heads = spec.num_kv_heads,
          .window_left = spec.window_left,
          .window_right = spec.causal ? 0 : spec.window_right,
          .bytes_per_key = 2 * (spec.head_dim_qk + spec.head_dim_vo)};
}

/// Whichever kernel and packing a plan will take.
std::int64_t HopperPrefill::max_items(std::int64_t batch, std::int64_t tokens) const {
  std::int64_t most = 0;
  for (const Ready& kernel : setup_.kernels)
    most = std::max(most, plan::max_prefill_tiles(rules(kernel.instance, 0), batch, tokens));
  return most;
}

WorkspaceSize HopperPrefill::workspace_size(const BatchBounds& bounds) const {
  plan::WorkspaceCutter count;
  lay_out(count, max_items(bounds.max_batch, bounds.max_qo_tokens), bounds.max_kv_entries);
  return {.device_bytes = count.bytes()};
}

bool HopperPrefill::serves(const sm90::Instance& instance, KvSource source) const {
  const bool boxes = source == KvSource::ragged || context_.page_size % 8 == 0;
  return instance.gather != boxes;
}

/// How long the batch takes, if all multiprocessors end together or the longest tile ends last.
std::int64_t HopperPrefill::cycles(const Ready& kernel, int pack_shift,
                                   const BatchView& batch) const {
  const plan::PrefillCount count = plan::count_prefill(rules(kernel.instance, pack_shift), batch);
  const sm90::Cost& cost = kernel.instance.cost;
  return std::max((count.tiles * cost.tile + count.key_tiles * cost.key_tile) / kernel.blocks,
                  cost.tile + count.longest * cost.key_tile);
}

/// The kernel, and how many neighbouring heads of one KV head a tile holds: the more, the fewer
/// tokens it spans, so that less of it lies behind the causal edge or the request's end. A batch
/// must not change a token's result where it was promised so: then always the first kernel, no
/// packing.
HopperPrefill::Choice HopperPrefill::choose(const BatchView& batch) const {
  Choice best;
  std::int64_t fewest = 0;
  for (const Ready& kernel : setup_.kernels) {
    if (!serves(kernel.instance, batch.source)) continue;
    if (context_.batch_invariant) return {&kernel, 0};
    constexpr int kWarpgroupRows = 64;
    const int group = context_.spec.gqa_group_size();
    for (int shift = 0; group % (1 << shift) == 0 && 1 << shift <= kWarpgroupRows; ++shift) {
      const std::int64_t needed = cycles(kernel, shift, batch);
      if (best.kernel != nullptr && needed >= fewest) continue;
      best = {&kernel, shift};
      fewest = needed;
    }
  }
  require(best.kernel != nullptr, "make_hopper_prefill leaves a kernel for every source of keys");
  return best;
}

Status HopperPrefill::fill(HopperPlan& plan, const BatchView& batch, Stream stream) const {
  plan::schedule_prefill(rules(plan.kernel->instance, plan.pack_shift), batch, plan.tiles);
  const auto num_items = static_cast<std::int64_t>(plan.tiles.size());
  const auto num_entries = static_cast<std::int64_t>(batch.kv_indices.size());
  if (num_items > plan.max_items || num_entries > plan.max_entries) {
    return invalid_argument(base::join("the plan's workspace holds ", plan.max_items, " tiles and ",
                                       plan.max_entries, " page ids, the batch needs ", num_items,
                                       " and ", num_entries, ": make a new plan"));
  }
  const auto* begin = static_cast<const std::byte*>(plan.workspace.device);
  const auto offset = [&](const void* part) {
    return static_cast<std::size_t>(static_cast<const std::byte*>(part) - begin);
  };
  plan.image.assign(offset(plan.parts.kv_indices + num_entries), std::byte{});
  const sm90::WorkList list{.num_items = static_cast<std::uint32_t>(num_items)};
  std::memcpy(plan.image.data(), &list, sizeof(list));
  std::memcpy(plan.image.data() + offset(plan.parts.items), plan.tiles.data(),
              plan.tiles.size() * sizeof(plan::PrefillTile));
  if (num_entries > 0)
    std::memcpy(plan.image.data() + offset(plan.parts.kv_indices), batch.kv_indices.data(),
                batch.kv_indices.size_bytes());
  return device::cuda::copy_to_device(
      plan.workspace.device, plan.image.data(), plan.image.size(), stream,
      base::join(descriptor_.name, ": copying a plan to the device"));
}

Result<PlanHandle> HopperPrefill::plan(const BatchView& batch, const Workspace& workspace,
                                       Stream stream) {
  auto facts = attention::validate_batch(batch, context_.spec, context_.page_size);
  if (!facts.ok()) return facts.status();
  const BatchBounds bounds = attention::bounds_of(batch);
  const std::size_t wanted = workspace_size(bounds).device_bytes;
  if (Status s = cuda::check_workspace(workspace, wanted); !s.ok()) return s;
  auto made = std::make_unique<HopperPlan>();
  made->facts = *facts;
  made->workspace = workspace;
  const Choice choice = choose(batch);
  made->kernel = choice.kernel;
  made->pack_shift = choice.pack_shift;
  made->max_items = max_items(bounds.max_batch, bounds.max_qo_tokens);
  // What the caller gave beyond this batch's needs is room for more page ids.
  made->max_entries =
      bounds.max_kv_entries +
      static_cast<std::int64_t>((workspace.device_bytes - wanted) / sizeof(std::int32_t));
  plan::WorkspaceCutter cut(workspace.device);
  made->parts = lay_out(cut, made->max_items, made->max_entries);
  if (Status s = fill(*made, batch, stream); !s.ok()) return s;
  return PlanHandle(std::move(made));
}

Status HopperPrefill::refresh(Plan& plan, const BatchView& batch, Stream stream) {
  auto& mine = static_cast<HopperPlan&>(plan);
  auto facts = attention::validate_batch(batch, context_.spec, context_.page_size);
  if (!facts.ok()) return facts.status();
  if (Status s = cuda::check_refresh(mine.facts, *facts); !s.ok()) return s;
  if (Status s = fill(mine, batch, stream); !s.ok()) return s;
  mine.facts = *facts;
  return {};
}

Status HopperPrefill::run(const Plan& plan, const LayerCall& call, Stream stream) {
  const auto& mine = static_cast<const HopperPlan&>(plan);
  const AttentionSpec& spec = context_.spec;
  if (Status s =
          attention::validate_run(call, mine.facts, spec, context_.page_size, context_.kv_layout);
      !s.ok())
    return s;
  if (mine.facts.num_qo_tokens == 0) return {};
  const sm90::Instance& instance = mine.kernel->instance;
  const bool ragged = mine.facts.source == KvSource::ragged;
  const bool hnd = !ragged && context_.kv_layout == KvLayout::hnd;
  const TensorView& k = ragged ? call.k : call.k_cache;
  const TensorView& v = ragged ? call.v : call.v_cache;
  const std::size_t token_axis = ragged ? 0 : hnd ? 2 : 1;
  const std::size_t head_axis = ragged || hnd ? 1 : 2;

  const sm90::Operands operands{.q = call.q.data,
                                .q_tokens = mine.facts.num_qo_tokens,
                                .q_token_stride = call.q.stride[0],
                                .q_head_stride = call.q.stride[1],
                                .num_qo_heads = spec.num_qo_heads,
                                .num_kv_heads = spec.num_kv_heads,
                                .num_pages = ragged ? 1 : k.shape[0],
                                .tokens_per_page = ragged ? k.shape[0] : context_.page_size};
  sm90::Params p;
  p.o = call.o.data;
  p.o_token_stride = call.o.stride[0];
  p.o_head_stride = call.o.stride[1];
  if (call.lse.defined()) {
    p.lse = call.lse.as<float>();
    p.lse_token_stride = call.lse.stride[0];
    p.lse_head_stride = call.lse.stride[1];
  }
  p.list = mine.parts.list;
  p.items = mine.parts.items;
  p.kv_indices = ragged ? nullptr : mine.parts.kv_indices;
  p.page_size = ragged ? 1 : context_.page_size;
  p.box_rows = sm90::box_rows(instance, operands.tokens_per_page, ragged);
  // Without any key no box is fetched, but a box needs an address.
  const bool keyless = ragged && k.shape[0] == 0;
  p.k = keyless ? mine.workspace.device : k.data;
  p.v = keyless ? mine.workspace.device : v.data;
  p.k_page_stride = k.stride[0];
  p.k_token_stride = k.stride[token_axis];
  p.k_head_stride = k.stride[head_axis];
  p.v_page_stride = v.stride[0];
  p.v_token_stride = v.stride[token_axis];
  p.v_head_stride = v.stride[head_axis];
  p.group = spec.gqa_group_size();
  p.pack_shift = mine.pack_shift;
  p.scale = spec.sm_scale * call.q_scale * call.k_scale;
  p.soft_cap = spec.logits_soft_cap;
  p.v_scale = call.v_scale;
  p.window_left = window(spec.window_left);
  p.window_right = spec.causal ? 0 : window(spec.window_right);
  p.sinks = spec.sinks ? call.sinks : nullptr;
  return sm90::launch(instance, setup_.encoder, mine.kernel->blocks, operands, p, native(stream));
}

Status check_context(const BackendContext& context, std::string_view who) {
  const AttentionSpec& spec = context.spec;
  if (context.device.kind != DeviceKind::cuda)
    return unsupported(base::join(who, " runs on cuda, not on ", name(context.device.kind)));
  if (spec.variant != Variant::gqa)
    return unsupported(base::join(who, " serves gqa here, not ", name(spec.variant)));
  const std::array<std::pair<bool, std::string_view>, 6> missing{
      {{spec.alibi, "alibi slopes"},
       {spec.custom_mask, "custom masks"},
       {spec.attention_chunk > 0, "attention chunks"},
       {spec.xai_temperature_len > 0, "temperatures by length"},
       {spec.per_head_scales, "scales by KV head"},
       {spec.relative_bias, "a learned relative bias"}}};
  for (const auto& [asked, what] : missing)
    if (asked) return unsupported(base::join(who, " has no kernel with ", what));
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.page_size < 1)
    return invalid_argument(base::join("page_size must be positive, have ", context.page_size));
  if (context.kv_layout != KvLayout::nhd && context.kv_layout != KvLayout::hnd)
    return unsupported(base::join(who, " reads nhd and hnd, not ", name(context.kv_layout)));
  if ((spec.q_dtype != DType::bf16 && spec.q_dtype != DType::f16) ||
      spec.kv_dtype != spec.q_dtype || spec.o_dtype != spec.q_dtype)
    return unsupported(base::join(who,
                                  " wants q, o, keys and values all in bf16 or all in fp16, "
                                  "have ",
                                  name(spec.q_dtype), ", ", name(spec.o_dtype), " and ",
                                  name(spec.kv_dtype)));
  return {};
}

bool declares_page(const BackendDescriptor& descriptor, std::int32_t page_size) {
  for (const Capability& row : descriptor.capabilities) {
    if (row.status == BackendStatus::not_built) continue;
    for (std::int32_t size : row.page_sizes)
      if (size == page_size) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_hopper_prefill(const BackendContext& context,
                                                     const BackendDescriptor& descriptor,
                                                     sm90::Strategy strategy) {
  if (Status s = check_context(context, descriptor.name); !s.ok()) return s;
  const AttentionSpec& spec = context.spec;
  const auto card = device::cuda::card_facts(context.device.index);
  if (!card.ok()) return card.status();
  if (card->sm != 90)
    return unsupported(base::join(descriptor.name, " wants compute capability 9.0, have ",
                                  card->sm / 10, ".", card->sm % 10));
  if (cudaError_t error = cudaSetDevice(context.device.index); error != cudaSuccess) {
    (void)cudaGetLastError();
    return status_of(error, "cudaSetDevice");
  }
  Setup setup;
  bool any_page = false;
  for (const sm90::Instance& instance : sm90::instances()) {
    if (instance.strategy != strategy || instance.dtype != spec.q_dtype ||
        instance.head_dim_qk != spec.head_dim_qk || instance.head_dim_vo != spec.head_dim_vo)
      continue;
    const auto blocks = sm90::prepare(instance);
    if (!blocks.ok()) return blocks.status();
    setup.kernels.push_back({instance, *blocks});
    any_page = any_page || instance.gather;
  }
  if (setup.kernels.empty())
    return unsupported(base::join(descriptor.name, " has no kernel for head dims ",
                                  spec.head_dim_qk, "/", spec.head_dim_vo, " in ",
                                  name(spec.q_dtype)));
  if (!any_page && !declares_page(descriptor, context.page_size))
    return unsupported(base::join(descriptor.name,
                                  " wants pages of 8, 16, 32, 64, 128 or 256 tokens, have ",
                                  context.page_size));
  const auto encoder = kernels::tensor_map::encoder();
  if (!encoder.ok()) return encoder.status();
  setup.encoder = *encoder;
  return std::unique_ptr<Backend>(
      std::make_unique<HopperPrefill>(context, descriptor, std::move(setup)));
}

}  // namespace attune::backends::shared
