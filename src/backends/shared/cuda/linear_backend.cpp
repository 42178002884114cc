#include "backends/shared/cuda/linear_backend.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <attune/linear_state.hpp>

#include "backends/shared/cuda/card.hpp"
#include "backends/shared/cuda/linear_planner.hpp"
#include "backends/shared/linear_checks.hpp"
#include "base/cuda/status.hpp"
#include "base/join.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/linear/sm90/launch.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared::cuda {
namespace {

namespace linear = kernels::linear;
namespace sm90 = kernels::linear::sm90;
using base::join;
using base::cuda::call_status;
using device::cuda::native;
using linear::Family;

struct LinearPlan final : Plan {
  Workspace workspace;
  LinearLists lists;
  LinearParts parts;
  plan::WorkspaceImage image;
};

class LinearBackend final : public Backend {
 public:
  LinearBackend(const BackendDescriptor& descriptor, const LinearSetup& setup)
      : descriptor_(descriptor), setup_(setup) {}

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return descriptor_; }

  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override {
    return {.device_bytes = lay_out(setup_, sizes_of(setup_, bounds), nullptr).bytes};
  }

  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override {
    auto made = std::make_unique<LinearPlan>();
    if (Status s = make_lists(setup_, batch, made->lists); !s.ok()) return s;
    const LinearSizes sizes = sizes_of(setup_, {.max_batch = batch.batch_size(),
                                                .max_qo_tokens = batch.num_qo_tokens(),
                                                .decode_only = batch.form == BatchForm::decode});
    const std::size_t wanted = lay_out(setup_, sizes, nullptr).bytes;
    if (workspace.device == nullptr || workspace.device_bytes < wanted)
      return invalid_argument(join("workspace: ", name(setup_.spec.variant), " wants ", wanted,
                                   " bytes for this batch, found ",
                                   workspace.device == nullptr ? 0 : workspace.device_bytes,
                                   "; size it with workspace_size()"));
    if (reinterpret_cast<std::uintptr_t>(workspace.device) % plan::WorkspaceCutter::kAlignment != 0)
      return invalid_argument("the workspace must be aligned to 256 bytes");
    made->workspace = workspace;
    made->parts = lay_out(setup_, sizes, workspace.device);
    if (made->parts.counter_bytes > 0)
      if (Status s = call_status(
              cudaMemsetAsync(made->parts.readers, 0, made->parts.counter_bytes, native(stream)),
              "linear attention: clearing a plan's counters");
          !s.ok())
        return s;
    if (Status s = upload(*made, stream); !s.ok()) return s;
    return PlanHandle(std::move(made));
  }

  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override {
    auto& mine = static_cast<LinearPlan&>(plan);
    LinearLists lists;
    if (Status s = make_lists(setup_, batch, lists); !s.ok()) return s;
    const LinearLists& old = mine.lists;
    // A captured run launches as many blocks as the plan had, on tensors of its shape.
    if (lists.num_tokens != old.num_tokens || lists.spans.size() != old.spans.size() ||
        lists.short_spans.size() != old.short_spans.size() ||
        lists.chunks.size() != old.chunks.size() ||
        lists.sequences.size() != old.sequences.size() ||
        lists.drafts.size() != old.drafts.size() || lists.most_tokens > old.most_tokens)
      return invalid_argument(join("refresh wants the plan's ", old.spans.size(), " requests, ",
                                   old.num_tokens, " tokens and ", old.chunks.size(),
                                   " chunks, found ", lists.spans.size(), ", ", lists.num_tokens,
                                   " and ", lists.chunks.size(), ": make a new plan"));
    lists.most_tokens = old.most_tokens;
    mine.lists = std::move(lists);
    return upload(mine, stream);
  }

  Status append_kv(const LayerCall&, Stream) override { return {}; }

  Status run(const Plan& plan, const LayerCall& call, Stream stream) override {
    const auto& mine = static_cast<const LinearPlan&>(plan);
    const AttentionSpec& spec = setup_.spec;
    if (Status s = validate_linear_call(spec, call, mine.lists.num_tokens, mine.lists.max_slot);
        !s.ok())
      return s;
    const cudaStream_t on = native(stream);
    const bool convolves = spec.variant != Variant::lightning;
    const sm90::ConvolutionParams known =
        convolves ? convolution_of(mine, call) : sm90::ConvolutionParams{};
    const sm90::ConvolutionParams drafts = of_drafts(mine, known);
    if (Status s =
            sm90::launch_fork_history(fork_launch(mine.lists, mine.parts, known, nullptr), on);
        !s.ok())
      return s;
    if (setup_.recurs()) {
      if (Status s = run_recurrence(mine, call, known.state, on); !s.ok()) return s;
      if (recurrent_moves_history(setup_, mine.lists)) return {};
    } else {
      for (const sm90::ConvolutionParams& part : {known, drafts})
        if (Status s = sm90::launch_convolution(part, on); !s.ok()) return s;
    }
    for (const sm90::ConvolutionParams& part : {known, drafts})
      if (Status s = sm90::launch_advance(part, on); !s.ok()) return s;
    return {};
  }

 private:
  Status upload(LinearPlan& plan, Stream stream) {
    write_image(plan.parts, plan.lists, plan.workspace.device, plan.image);
    if (plan.image.bytes() == 0) return {};
    return device::cuda::copy_to_device(plan.image.place(), plan.image.data(), plan.image.bytes(),
                                        stream, "linear attention: copying a plan to the device");
  }

  Status run_recurrence(const LinearPlan& plan, const LayerCall& call, void* conv_state,
                        cudaStream_t stream) const {
    const linear::Params p = recurrence_params(setup_.spec, call);
    const sm90::DecodeParams known = decode_params(setup_, plan.lists, plan.parts, p, conv_state);
    if (Status s = sm90::launch_recurrent(known, stream); !s.ok()) return s;
    if (!plan.lists.drafts.empty()) return run_drafts(plan, p, known, stream);
    const PromptLaunch prompts = prompt_launch(setup_, plan.lists, plan.parts, p);
    return sm90::launch_prompts(prompts.params, prompts.copy_rows, prompts.slice, stream);
  }

  /// Behind the known tokens, in the drafts' own slots.
  static Status run_drafts(const LinearPlan& plan, const linear::Params& p,
                           const sm90::DecodeParams& known, cudaStream_t stream) {
    if (Status s = sm90::launch_fork_state(fork_launch(plan.lists, plan.parts, {}, &p), stream);
        !s.ok())
      return s;
    sm90::DecodeParams drafts = known;
    drafts.spans = plan.parts.drafts;
    drafts.num_spans = static_cast<std::int32_t>(plan.lists.drafts.size());
    return sm90::launch_recurrent(drafts, stream);
  }

  /// The same pass over the drafts; over nothing where there are none.
  static sm90::ConvolutionParams of_drafts(const LinearPlan& plan,
                                           const sm90::ConvolutionParams& known) {
    sm90::ConvolutionParams drafts = known;
    drafts.spans = plan.parts.drafts;
    drafts.num_spans = static_cast<std::int32_t>(plan.lists.drafts.size());
    return drafts;
  }

  [[nodiscard]] sm90::ConvolutionParams convolution_of(const LinearPlan& plan,
                                                       const LayerCall& call) const {
    return convolution_launch(plan.lists, plan.parts, convolution_params(setup_.spec, call));
  }

  const BackendDescriptor& descriptor_;
  LinearSetup setup_;
};

Family family_of(Variant v) {
  if (v == Variant::kda) return Family::kda;
  if (v == Variant::mamba2) return Family::mamba2;
  return v == Variant::lightning ? Family::lightning : Family::gdn;
}

/// A factory serves the rows of its own descriptor.
Status check_declared(const BackendDescriptor& descriptor, Variant variant) {
  for (const Capability& row : descriptor.capabilities)
    if (row.device == DeviceKind::cuda && row.variants.contains(variant)) return {};
  return unsupported(join(descriptor.name, " does not serve ", name(variant), " on cuda"),
                     {{std::string(descriptor.name), "variant", "one its rows declare",
                       std::string(name(variant))}});
}

Status check_dims(const LinearSetup& setup) {
  const AttentionSpec& s = setup.spec;
  if (!setup.recurs()) return {};
  if (sm90::key_columns(setup.family, s.linear_head_dim_k) == 0)
    return unsupported(
        join(name(s.variant), " on cuda has kernels for keys of up to ",
             s.variant == Variant::mamba2 || s.variant == Variant::lightning ? 256 : 128,
             " dims, not ", s.linear_head_dim_k));
  if (s.linear_head_dim_v > sm90::kMaxValueDim)
    return unsupported(join(name(s.variant), " on cuda has kernels for values of up to ",
                            sm90::kMaxValueDim, " dims, not ", s.linear_head_dim_v));
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_linear(const BackendDescriptor& descriptor,
                                             const BackendContext& context) {
  if (context.device.kind != DeviceKind::cuda)
    return unsupported(
        join(descriptor.name, " runs on cuda here, not on ", name(context.device.kind)));
  if (Status s = check_declared(descriptor, context.spec.variant); !s.ok()) return s;
  if (Status s = validate_linear_spec(context.spec); !s.ok()) return s;
  const auto card = enter_hopper(descriptor.name, context);
  if (!card.ok()) return card.status();
  const LinearSetup setup{.spec = context.spec,
                          .family = family_of(context.spec.variant),
                          .num_sms = card->num_sms,
                          .batch_invariant = context.batch_invariant};
  if (Status s = check_dims(setup); !s.ok()) return s;
  if (Status s = sm90::prepare_kernels(); !s.ok()) return s;
  return std::unique_ptr<Backend>(std::make_unique<LinearBackend>(descriptor, setup));
}

}  // namespace attune::backends::shared::cuda
