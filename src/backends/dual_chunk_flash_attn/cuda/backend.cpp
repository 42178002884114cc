// Dual chunk attention by the kernels of plain attention: up to three runs, one for each of a head's
// queries (plan/chunk_stages.hpp), whose states meet by their lse. A batch that stands in its first
// chunk is plain attention, and one run.
#include "backends/dual_chunk_flash_attn/cuda/backend.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <attune/validate.hpp>

#include "backends/dual_chunk_flash_attn/descriptor.hpp"
#include "backends/shared/alignment.hpp"
#include "backends/shared/cuda/dense_glue.hpp"
#include "backends/shared/cuda/outputs.hpp"
#include "backends/shared/cuda/paged_attention.hpp"
#include "base/join.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/merge_states/sm80/launch.hpp"
#include "plan/chunk_stages.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::dual_chunk_flash_attn {
namespace {

namespace merge_states = kernels::merge_states::sm80;

constexpr std::size_t kStages = kDualChunkQueries;

/// Places of a workspace, behind those of the stages.
struct Parts {
  float* state_o = nullptr;        ///< [stage, token, head, head_dim_vo]
  float* state_lse = nullptr;      ///< [stage, token, head]
  std::int32_t* first = nullptr;   ///< [tokens + 1]
  std::int32_t* states = nullptr;  ///< [tokens, stage]
};

struct ChunkPlan final : Plan {
  attention::BatchFacts facts;
  bool several = false;  ///< some row stands beyond the first chunk
  PlanHandle whole;      ///< of all rows and keys, where none does
  plan::ChunkStages stages;
  std::array<PlanHandle, kStages> of_stage;
  Parts parts;
};

class ChunkBackend final : public Backend {
 public:
  ChunkBackend(const BackendContext& context, std::unique_ptr<Backend> whole,
               std::unique_ptr<Backend> causal, std::unique_ptr<Backend> open)
      : context_(context),
        whole_(std::move(whole)),
        causal_(std::move(causal)),
        open_(std::move(open)) {
    context_.executor = nullptr;
  }

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return kDescriptor; }
  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override;
  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override;
  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override;
  Status append_kv(const LayerCall& call, Stream stream) override {
    return shared::cuda::append_kv(call, context_, stream);
  }
  Status run(const Plan& plan, const LayerCall& call, Stream stream) override;

 private:
  [[nodiscard]] bool several(std::int64_t kv_len) const {
    return kv_len > context_.spec.dual_chunk_len;
  }
  /// Rows meet the keys of their own chunk up to themselves, of earlier ones all.
  [[nodiscard]] Backend& stage(std::size_t query) const { return query == 0 ? *causal_ : *open_; }
  [[nodiscard]] BatchBounds stage_bounds(const BatchBounds& bounds) const;
  [[nodiscard]] Parts lay_out(plan::WorkspaceCutter& cut, std::int64_t tokens) const;
  [[nodiscard]] Result<attention::BatchFacts> check(const BatchView& batch) const;
  [[nodiscard]] Status plan_stages(const BatchView& batch, const Workspace& workspace,
                                   Stream stream, ChunkPlan& made) const;
  [[nodiscard]] Status list_states(const ChunkPlan& plan, Stream stream) const;
  [[nodiscard]] LayerCall call_of(const LayerCall& call, std::size_t query) const;

  BackendContext context_;
  std::unique_ptr<Backend> whole_;   ///< writes o
  std::unique_ptr<Backend> causal_;  ///< these write states
  std::unique_ptr<Backend> open_;
};

Parts ChunkBackend::lay_out(plan::WorkspaceCutter& cut, std::int64_t tokens) const {
  const AttentionSpec& spec = context_.spec;
  const std::int64_t rows = static_cast<std::int64_t>(kStages) * tokens;
  return {.state_o = cut.take<float>(rows * spec.num_qo_heads * spec.head_dim_vo),
          .state_lse = cut.take<float>(rows * spec.num_qo_heads),
          .first = cut.take<std::int32_t>(tokens + 1),
          .states = cut.take<std::int32_t>(rows)};
}

/// A request's own chunk may hold more pages when the request is shorter: stages have room for all of
/// the batch's page ids, however their sizes are rounded.
BatchBounds ChunkBackend::stage_bounds(const BatchBounds& bounds) const {
  BatchBounds stage = plan::chunk_stage_bounds(bounds, context_.spec.dual_chunk_len);
  stage.max_kv_entries +=
      static_cast<std::int64_t>(plan::WorkspaceCutter::kAlignment / sizeof(std::int32_t));
  return stage;
}

WorkspaceSize ChunkBackend::workspace_size(const BatchBounds& bounds) const {
  WorkspaceSize size = whole_->workspace_size(bounds);
  if (!several(bounds.max_kv_len)) return size;
  const BatchBounds of_stage = stage_bounds(bounds);
  plan::WorkspaceCutter count;
  (void)lay_out(count, bounds.max_qo_tokens);
  std::size_t bytes = count.bytes();
  for (std::size_t query = 0; query < kStages; ++query)
    bytes += stage(query).workspace_size(of_stage).device_bytes;
  size.device_bytes = std::max(size.device_bytes, bytes);
  return size;
}

Result<attention::BatchFacts> ChunkBackend::check(const BatchView& batch) const {
  if (batch.source != KvSource::paged && batch.batch_size() > 0)
    return unsupported(base::join(kDescriptor.name, " reads keys from pages only"));
  return attention::validate_batch(batch, context_.spec, context_.page_size);
}

Result<PlanHandle> ChunkBackend::plan(const BatchView& batch, const Workspace& workspace,
                                      Stream stream) {
  auto facts = check(batch);
  if (!facts.ok()) return facts.status();
  const std::size_t wanted = workspace_size(attention::bounds_of(batch)).device_bytes;
  if (Status s = shared::cuda::check_workspace(workspace, wanted); !s.ok()) return s;
  auto made = std::make_unique<ChunkPlan>();
  made->facts = *facts;
  made->several = several(facts->max_kv_len);
  if (made->several) {
    if (Status s = plan_stages(batch, workspace, stream, *made); !s.ok()) return s;
    return PlanHandle(std::move(made));
  }
  auto whole = whole_->plan(batch, workspace, stream);
  if (!whole.ok()) return whole.status();
  made->whole = std::move(*whole);
  return PlanHandle(std::move(made));
}

Status ChunkBackend::plan_stages(const BatchView& batch, const Workspace& workspace, Stream stream,
                                 ChunkPlan& made) const {
  const std::int64_t tokens = made.facts.num_qo_tokens;
  plan::list_chunk_stages(batch, context_.spec.dual_chunk_len, made.stages);
  const BatchBounds bounds = stage_bounds(attention::bounds_of(batch));
  std::array<std::size_t, kStages> wanted;
  plan::WorkspaceCutter count;
  (void)lay_out(count, tokens);
  std::size_t all = count.bytes();
  for (std::size_t query = 0; query < kStages; ++query)
    all += wanted[query] = stage(query).workspace_size(bounds).device_bytes;
  // What the caller gave beyond this batch's needs is room for longer requests.
  const std::size_t spare = workspace.device_bytes > all ? workspace.device_bytes - all : 0;
  const std::size_t more =
      spare / kStages / plan::WorkspaceCutter::kAlignment * plan::WorkspaceCutter::kAlignment;
  auto* memory = static_cast<std::byte*>(workspace.device);
  for (std::size_t query = 0; query < kStages; ++query) {
    const Workspace own{.device = memory, .device_bytes = wanted[query] + more};
    memory += own.device_bytes;
    auto planned = stage(query).plan(
        made.stages.of[query].view(made.stages.form, context_.page_size), own, stream);
    if (!planned.ok()) return planned.status();
    made.of_stage[query] = std::move(*planned);
  }
  plan::WorkspaceCutter cut(memory);
  made.parts = lay_out(cut, tokens);
  return list_states(made, stream);
}

/// Every token has a state of each stage.
Status ChunkBackend::list_states(const ChunkPlan& plan, Stream stream) const {
  const auto tokens = static_cast<std::int32_t>(plan.facts.num_qo_tokens);
  const auto stages = static_cast<std::int32_t>(kStages);
  std::vector<std::int32_t> first;
  std::vector<std::int32_t> states;
  for (std::int32_t token = 0; token <= tokens; ++token) first.push_back(token * stages);
  for (std::int32_t token = 0; token < tokens; ++token)
    for (std::int32_t query = 0; query < stages; ++query) states.push_back(query * tokens + token);
  const auto copy = [&](std::int32_t* to, const std::vector<std::int32_t>& from) {
    return device::cuda::copy_to_device(to, from.data(), from.size() * sizeof(std::int32_t), stream,
                                        "copying a plan to the device");
  };
  if (Status s = copy(plan.parts.first, first); !s.ok()) return s;
  return copy(plan.parts.states, states);
}

Status ChunkBackend::refresh(Plan& plan, const BatchView& batch, Stream stream) {
  auto& mine = static_cast<ChunkPlan&>(plan);
  auto facts = check(batch);
  if (!facts.ok()) return facts.status();
  if (Status s = shared::cuda::check_refresh(mine.facts, *facts); !s.ok()) return s;
  if (!mine.several && several(facts->max_kv_len))
    return invalid_argument("a request has left its first chunk: make a new plan");
  if (!mine.several) {
    if (Status s = whole_->refresh(*mine.whole, batch, stream); !s.ok()) return s;
  } else {
    plan::list_chunk_stages(batch, context_.spec.dual_chunk_len, mine.stages);
    for (std::size_t query = 0; query < kStages; ++query)
      if (Status s = stage(query).refresh(
              *mine.of_stage[query],
              mine.stages.of[query].view(mine.stages.form, context_.page_size), stream);
          !s.ok())
        return s;
    // Other plans may have had their turn in the workspace.
    if (Status s = list_states(mine, stream); !s.ok()) return s;
  }
  mine.facts = *facts;
  return {};
}

/// The call with one of its heads' queries.
LayerCall ChunkBackend::call_of(const LayerCall& call, std::size_t query) const {
  LayerCall one = call;
  const auto columns = static_cast<std::int64_t>(query) * context_.spec.head_dim_qk;
  one.q.data = static_cast<std::byte*>(call.q.data) +
               columns * static_cast<std::int64_t>(size_of(call.q.dtype));
  one.q.shape[2] = context_.spec.head_dim_qk;
  return one;
}

Status ChunkBackend::run(const Plan& plan, const LayerCall& call, Stream stream) {
  const auto& mine = static_cast<const ChunkPlan&>(plan);
  const AttentionSpec& spec = context_.spec;
  if (Status s =
          attention::validate_run(call, mine.facts, spec, context_.page_size, context_.kv_layout);
      !s.ok())
    return s;
  if (!mine.several) return whole_->run(*mine.whole, call_of(call, 0), stream);
  if (Status s = shared::check_alignment("o", call.o); !s.ok()) return s;

  const std::int64_t tokens = mine.facts.num_qo_tokens;
  const std::int64_t heads = spec.num_qo_heads;
  for (std::size_t query = 0; query < kStages; ++query) {
    LayerCall one = call_of(call, query);
    const std::int64_t rows = static_cast<std::int64_t>(query) * tokens * heads;
    one.o = TensorView::dense(mine.parts.state_o + rows * spec.head_dim_vo, DType::f32,
                              {tokens, heads, spec.head_dim_vo});
    one.lse = TensorView::dense(mine.parts.state_lse + rows, DType::f32, {tokens, heads});
    if (Status s = stage(query).run(*mine.of_stage[query], one, stream); !s.ok()) return s;
  }
  merge_states::Params p{.state_o = mine.parts.state_o,
                         .state_lse = mine.parts.state_lse,
                         .first = mine.parts.first,
                         .rows = mine.parts.states,
                         .num_tokens = tokens,
                         .num_heads = spec.num_qo_heads,
                         .heads_per_kv_head = spec.gqa_group_size(),
                         .head_dim = spec.head_dim_vo,
                         .o_dtype = call.o.dtype};
  shared::cuda::set_outputs(call, p);
  return merge_states::launch(p, false, device::cuda::native(stream));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  const AttentionSpec& spec = context.spec;
  if (spec.variant != Variant::dual_chunk)
    return unsupported(
        base::join(kDescriptor.name, " serves dual_chunk, not ", name(spec.variant)));
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.page_size < 1 || spec.dual_chunk_len % context.page_size != 0)
    return unsupported(base::join(kDescriptor.name, " wants chunks of whole pages: chunks of ",
                                  spec.dual_chunk_len, " positions, pages of ", context.page_size));
  BackendContext plain = context;
  plain.spec.variant = Variant::gqa;
  plain.spec.dual_chunk_len = 0;
  // Their plans take turns in one workspace.
  auto whole = shared::make_paged_attention(plain, kDescriptor, {.hopper = true, .mails = false});
  if (!whole.ok()) return whole;
  plain.spec.o_dtype = DType::f32;
  auto causal = shared::make_paged_attention(plain, kDescriptor, {.mails = false});
  if (!causal.ok()) return causal;
  plain.spec.causal = false;
  auto open = shared::make_paged_attention(plain, kDescriptor, {.mails = false});
  if (!open.ok()) return open;
  return std::unique_ptr<Backend>(std::make_unique<ChunkBackend>(
      context, std::move(*whole), std::move(*causal), std::move(*open)));
}

}  // namespace attune::backends::dual_chunk_flash_attn
