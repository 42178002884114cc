#include "backends/shared/cuda/hopper_latent.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <attune/validate.hpp>

#include "attention/lse.hpp"
#include "backends/shared/latent_checks.hpp"
#include "base/join.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/status.hpp"
#include "kernels/append_kv/sm80/launch.hpp"
#include "kernels/mla_decode/sm90/launch.hpp"
#include "plan/latent_work.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared {
namespace {

namespace sm90 = kernels::mla_decode::sm90;
namespace append = kernels::append_kv::sm80;
using device::cuda::native;
using device::cuda::status_of;

/// Thread blocks of the merge kernel a multiprocessor holds.
constexpr int kMergeBlocksPerSm = 16;

struct Setup {
  const sm90::Instance* kernels = nullptr;
  kernels::tensor_map::Encoder encoder = nullptr;
  plan::LatentRules rules;
};

/// Places of a workspace, counted and handed out by the same lines. From `work` on it is a copy of
/// the plan's image; page ids come last.
struct Parts {
  float* partial_o = nullptr;
  float* partial_maximum = nullptr;
  float* partial_sum = nullptr;
  attention::LatentWork* work = nullptr;
  std::int32_t* group_begin = nullptr;
  attention::LatentItem* items = nullptr;
  attention::LatentMerge* merges = nullptr;
  std::int32_t* kv_indices = nullptr;
};

Parts lay_out(plan::WorkspaceCutter& cut, const plan::LatentRules& rules,
              const plan::LatentLimits& limits, std::int64_t kv_entries) {
  Parts parts;
  const std::int64_t rows = limits.part_blocks * sm90::kRows;
  parts.partial_o = cut.take<float>(rows * sm90::kDimVo);
  parts.partial_maximum = cut.take<float>(rows);
  parts.partial_sum = cut.take<float>(rows);
  parts.work = cut.take<attention::LatentWork>(1);
  parts.group_begin = cut.take<std::int32_t>(rules.workers + 1);
  parts.items = cut.take<attention::LatentItem>(limits.items);
  parts.merges = cut.take<attention::LatentMerge>(limits.merges);
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
  std::vector<std::byte> image;
};

class HopperLatent final : public Backend {
 public:
  HopperLatent(const BackendContext& context, const BackendDescriptor& descriptor, Setup setup)
      : context_(context), descriptor_(descriptor), setup_(setup) {
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
  Setup setup_;
};

WorkspaceSize HopperLatent::workspace_size(const BatchBounds& bounds) const {
  plan::WorkspaceCutter count;
  lay_out(count, setup_.rules, plan::latent_limits(setup_.rules, bounds.max_qo_tokens),
          bounds.max_kv_entries);
  return {.device_bytes = count.bytes()};
}

Result<attention::BatchFacts> HopperLatent::facts_of(const BatchView& batch) const {
  if (batch.source != KvSource::paged && batch.batch_size() > 0)
    return unsupported(base::join(descriptor_.name, " reads latents from pages only"));
  return attention::validate_batch(batch, context_.spec, context_.page_size);
}

Status HopperLatent::fill(LatentPlan& plan, const BatchView& batch, Stream stream) const {
  plan::list_latent_work(batch, setup_.rules, plan.shape, plan.list);
  const plan::LatentList& list = plan.list;
  const auto num_items = static_cast<std::int64_t>(list.items.size());
  const auto num_merges = static_cast<std::int64_t>(list.merges.size());
  const std::int64_t part_blocks = std::int64_t{list.places} * plan.shape.lanes;
  const auto num_entries = static_cast<std::int64_t>(batch.kv_indices.size());
  if (num_items > plan.limits.items || num_merges > plan.limits.merges ||
      part_blocks > plan.limits.part_blocks || num_entries > plan.max_entries)
    return invalid_argument(base::join("the plan's workspace holds ", plan.limits.items, " items, ",
                                       plan.limits.part_blocks, " parts and ", plan.max_entries,
                                       " page ids, the batch needs ", num_items, ", ", part_blocks,
                                       " and ", num_entries, ": make a new plan"));
  const auto* begin = reinterpret_cast<const std::byte*>(plan.parts.work);
  const auto offset = [&](const void* part) {
    return static_cast<std::size_t>(static_cast<const std::byte*>(part) - begin);
  };
  plan.image.assign(offset(plan.parts.kv_indices + num_entries), std::byte{});
  const auto put = [&](const void* part, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(plan.image.data() + offset(part), from, bytes);
  };
  const attention::LatentWork work{.num_items = static_cast<std::int32_t>(num_items),
                                   .num_merges = static_cast<std::int32_t>(num_merges)};
  put(plan.parts.work, &work, sizeof(work));
  put(plan.parts.group_begin, list.group_begin.data(),
      list.group_begin.size() * sizeof(std::int32_t));
  put(plan.parts.items, list.items.data(), list.items.size() * sizeof(attention::LatentItem));
  put(plan.parts.merges, list.merges.data(), list.merges.size() * sizeof(attention::LatentMerge));
  put(plan.parts.kv_indices, batch.kv_indices.data(), batch.kv_indices.size_bytes());
  // The image is ordinary memory: the call returns when it has been read.
  const cudaError_t error = cudaMemcpyAsync(plan.parts.work, plan.image.data(), plan.image.size(),
                                            cudaMemcpyHostToDevice, native(stream));
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return status_of(error, base::join(descriptor_.name, ": copying a plan to the device"));
}

Result<PlanHandle> HopperLatent::plan(const BatchView& batch, const Workspace& workspace,
                                      Stream stream) {
  auto facts = facts_of(batch);
  if (!facts.ok()) return facts.status();
  const BatchBounds bounds = attention::bounds_of(batch);
  const std::size_t wanted = workspace_size(bounds).device_bytes;
  if (workspace.device == nullptr || workspace.device_bytes < wanted)
    return invalid_argument(base::join("the workspace is too small: want ", wanted, " bytes, have ",
                                       workspace.device == nullptr ? 0 : workspace.device_bytes));
  if (reinterpret_cast<std::uintptr_t>(workspace.device) % plan::WorkspaceCutter::kAlignment != 0)
    return invalid_argument("the workspace must be aligned to 256 bytes");
  auto made = std::make_unique<LatentPlan>();
  made->facts = *facts;
  made->limits = plan::latent_limits(setup_.rules, bounds.max_qo_tokens);
  // What the caller gave beyond this batch's needs is room for more page ids.
  made->max_entries =
      bounds.max_kv_entries +
      static_cast<std::int64_t>((workspace.device_bytes - wanted) / sizeof(std::int32_t));
  plan::WorkspaceCutter cut(workspace.device);
  made->parts = lay_out(cut, setup_.rules, made->limits, made->max_entries);
  made->shape = plan::latent_shape(setup_.rules, batch);
  if (Status s = fill(*made, batch, stream); !s.ok()) return s;
  return PlanHandle(std::move(made));
}

Status HopperLatent::refresh(Plan& plan, const BatchView& batch, Stream stream) {
  auto& mine = static_cast<LatentPlan&>(plan);
  auto facts = facts_of(batch);
  if (!facts.ok()) return facts.status();
  // A captured run reads tensors of the plan's shape.
  if (facts->num_qo_tokens != mine.facts.num_qo_tokens)
    return invalid_argument(base::join("refresh wants the plan's ", mine.facts.num_qo_tokens,
                                       " query tokens, have ", facts->num_qo_tokens,
                                       ": make a new plan"));
  if (Status s = fill(mine, batch, stream); !s.ok()) return s;
  mine.facts = *facts;
  return {};
}

Status HopperLatent::append_kv(const LayerCall& call, Stream stream) {
  const AttentionSpec& spec = context_.spec;
  if (Status s = attention::validate_append(call, spec, context_.page_size, context_.kv_layout);
      !s.ok())
    return s;
  const append::Side latents{.in = call.k.data,
                             .in_token_stride = call.k.stride[0],
                             .in_head_stride = call.k.stride[1],
                             .cache = call.k_cache.data,
                             .page_stride = call.k_cache.stride[0],
                             .token_stride = call.k_cache.stride[1],
                             .head_dim = spec.head_dim_qk,
                             .scale = call.k_scale};
  return append::launch({.k = latents,
                         .v = {},  // no columns: values are a slice of the keys
                         .in_dtype = call.k.dtype,
                         .cache_dtype = spec.kv_dtype,
                         .page_size = context_.page_size,
                         .num_heads = 1,
                         .num_tokens = static_cast<std::int64_t>(call.slot_mapping.size()),
                         .num_slots = call.k_cache.shape[0] * context_.page_size,
                         .slot_mapping = call.slot_mapping.data()},
                        native(stream));
}

Status HopperLatent::run(const Plan& plan, const LayerCall& call, Stream stream) {
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
  const bool keyless = !call.k_cache.defined();
  sm90::Operands operands{.q = call.q.data,
                          .q_tokens = mine.facts.num_qo_tokens,
                          .q_token_stride = call.q.stride[0],
                          .q_head_stride = call.q.stride[1]};
  if (keyless) {
    // No page is fetched, but the copy engine needs an address.
    operands.k = call.q.data;
    operands.num_pages = 1;
    operands.k_page_stride = std::int64_t{sm90::kKeys} * sm90::kDimQk;
    operands.k_token_stride = sm90::kDimQk;
  } else {
    operands.k = call.k_cache.data;
    operands.num_pages = call.k_cache.shape[0];
    operands.k_page_stride = call.k_cache.stride[0];
    operands.k_token_stride = call.k_cache.stride[1];
  }
  sm90::Params p;
  p.o = call.o.data;
  p.o_token_stride = call.o.stride[0];
  p.o_head_stride = call.o.stride[1];
  if (call.lse.defined()) {
    p.lse = call.lse.as<float>();
    p.lse_token_stride = call.lse.stride[0];
    p.lse_head_stride = call.lse.stride[1];
  }
  p.work = mine.parts.work;
  p.group_begin = mine.parts.group_begin;
  p.items = mine.parts.items;
  p.merges = mine.parts.merges;
  p.kv_indices = mine.parts.kv_indices;
  p.partial_o = mine.parts.partial_o;
  p.partial_maximum = mine.parts.partial_maximum;
  p.partial_sum = mine.parts.partial_sum;
  p.lanes = mine.shape.lanes;
  p.num_heads = spec.num_qo_heads;
  p.heads_per_block = mine.shape.heads_per_block;
  p.tokens_per_block = mine.shape.tokens_per_block;
  p.head_blocks = mine.shape.head_blocks;
  p.causal = spec.causal ? 1 : 0;
  p.scale_log2 =
      spec.sm_scale * call.q_scale * call.k_scale * static_cast<float>(attention::kLog2E);
  p.v_scale = call.v_scale;
  const sm90::Grid grid{.blocks = plan::latent_groups(setup_.rules, mine.shape) * mine.shape.lanes,
                        .merge_blocks = kMergeBlocksPerSm * setup_.rules.workers};
  return sm90::launch(*setup_.kernels, setup_.encoder, grid, operands, p, native(stream));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_hopper_latent(const BackendContext& context,
                                                    const BackendDescriptor& descriptor) {
  if (Status s = check_latent_context(context, {.backend = descriptor.name,
                                                .page_size = sm90::kKeys,
                                                .otherwise = ": make the cache with that page"});
      !s.ok())
    return s;
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
  setup.kernels = sm90::find(context.spec.q_dtype);
  require(setup.kernels != nullptr, "check_latent_context leaves bf16 and fp16");
  if (Status s = sm90::prepare(*setup.kernels); !s.ok()) return s;
  const auto encoder = kernels::tensor_map::encoder();
  if (!encoder.ok()) return encoder.status();
  setup.encoder = *encoder;
  setup.rules = {.num_heads = context.spec.num_qo_heads,
                 .causal = context.spec.causal,
                 .rows = sm90::kRows,
                 .tile = sm90::kKeys,
                 .workers = card->num_sms};
  return std::unique_ptr<Backend>(std::make_unique<HopperLatent>(context, descriptor, setup));
}

}  // namespace attune::backends::shared
