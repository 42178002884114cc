#include "backends/shared/linear_backend.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <attune/linear_state.hpp>

#include "backends/shared/linear_checks.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "kernels/linear/convolution.hpp"
#include "kernels/linear/params.hpp"
#include "kernels/linear/policy.hpp"
#include "kernels/linear/reference.hpp"
#include "kernels/linear/table.hpp"

namespace attune::backends::shared {
namespace {

using base::join;
using kernels::linear::Item;
namespace linear = kernels::linear;

constexpr std::int64_t kScratchAlignment =
    64;  // floats: a thread's scratch begins on pages of its own lines
constexpr int kConvolutionChannels = 256;  // channels of one short_conv item
constexpr int kItemsPerThread = 8;
static_assert(kPromptGranule % linear::kChunk == 0, "a prompt's chunks begin at the same tokens");

/// A request's tokens, or its tokens for some heads or channels: those that are known, which its
/// state passes, and drafts, which start from that state and pass a copy in another slot.
struct Work {
  Item known;
  Item drafts;

  [[nodiscard]] std::int64_t size() const {
    return (known.num_tokens + drafts.num_tokens) * known.num_heads;
  }
  void take_heads(int first, int count) {
    known.first_head = drafts.first_head = first;
    known.num_heads = drafts.num_heads = count;
  }
};

struct LinearPlan final : Plan {
  std::vector<Work> items;     ///< (request, heads) or (request, channels), longest first
  std::vector<Work> requests;  ///< one each with a state to advance
  bool has_drafts = false;
  std::int64_t num_tokens = 0;
  std::int64_t max_slot = -1;
  float* scratch = nullptr;
};

Work work_of(const BatchView& batch, std::int64_t i) {
  const auto at = static_cast<std::size_t>(i);
  const std::int64_t drafts = batch.draft_len.empty() ? 0 : batch.draft_len[at];
  Work work;
  work.known = {.first_token = batch.qo_indptr[at],
                .num_tokens = batch.qo_len(i) - drafts,
                .slot = batch.state_indices[at]};
  if (drafts > 0)
    work.drafts = {.first_token = batch.qo_indptr[at + 1] - drafts,
                   .num_tokens = drafts,
                   .slot = batch.draft_states[at]};
  return work;
}

const linear::Kernel* strongest_kernel(CpuIsa usable) {
  for (const linear::Kernel* kernel : linear::kernels()) {
    if (kernel->isa == linear::Isa::avx512_bf16 && usable < CpuIsa::avx512_bf16) continue;
    if (kernel->isa == linear::Isa::avx512 && usable < CpuIsa::avx512) continue;
    if (kernel->isa == linear::Isa::avx2 && usable < CpuIsa::avx2) continue;
    return kernel;
  }
  return nullptr;
}

class LinearBackend final : public Backend {
 public:
  LinearBackend(const BackendDescriptor& descriptor, const BackendContext& context,
                const linear::Kernel* kernel)
      : descriptor_(descriptor),
        spec_(context.spec),
        executor_(*context.executor),
        batch_invariant_(context.batch_invariant),
        kernel_(kernel) {}

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return descriptor_; }

  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds&) const override {
    const auto floats = static_cast<std::size_t>(scratch_floats() * executor_.num_threads());
    return {.device_bytes = floats * sizeof(float)};
  }

  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace, Stream) override {
    auto made = std::make_unique<LinearPlan>();
    const WorkspaceSize wanted = workspace_size({});
    if (workspace.device_bytes < wanted.device_bytes)
      return invalid_argument(join("workspace: ", name(spec_.variant), " wants ",
                                   wanted.device_bytes, " bytes, found ", workspace.device_bytes,
                                   "; size it with workspace_size()"));
    made->scratch = static_cast<float*>(workspace.device);
    if (Status s = fill(*made, batch); !s.ok()) return s;
    return PlanHandle(std::move(made));
  }

  Status refresh(Plan& plan, const BatchView& batch, Stream) override {
    return fill(static_cast<LinearPlan&>(plan), batch);
  }

  Status append_kv(const LayerCall&, Stream) override { return {}; }

  Status run(const Plan& plan, const LayerCall& call, Stream) override {
    const auto& p = static_cast<const LinearPlan&>(plan);
    if (Status s = validate_linear_call(spec_, call, p.num_tokens, p.max_slot); !s.ok()) return s;
    if (spec_.conv_kernel > 1 && p.has_drafts) fork_convolution(p, call);
    if (spec_.variant == Variant::short_conv) {
      run_convolution(p, call);
    } else {
      run_recurrence(p, call);
    }
    if (spec_.conv_kernel > 1) advance_convolution(p, call);
    return {};
  }

 private:
  [[nodiscard]] std::int64_t scratch_floats() const {
    if (kernel_ == nullptr) return 0;
    if (spec_.variant == Variant::short_conv)
      return base::round_up(kernel_->convolution_floats(kConvolutionChannels), kScratchAlignment);
    linear::Params p;
    p.family = spec_.variant == Variant::kda ? linear::Family::kda : linear::Family::gdn;
    p.dk = spec_.linear_head_dim_k;
    p.dv = spec_.linear_head_dim_v;
    return base::round_up(kernel_->scratch_floats(p), kScratchAlignment);
  }

  Status fill(LinearPlan& plan, const BatchView& batch) const {
    if (Status s = validate_linear_batch(spec_, batch); !s.ok()) return s;
    const std::int64_t n = batch.batch_size();
    const bool convolution = spec_.variant == Variant::short_conv;
    const int units = convolution ? base::ceil_div(spec_.conv_dim, kConvolutionChannels)
                                  : spec_.linear_num_v_heads;
    // Few requests: heads apart, to feed every thread. Many: heads together, to share what they
    // read.
    const std::int64_t wanted =
        static_cast<std::int64_t>(executor_.num_threads()) * kItemsPerThread;
    const int parts = static_cast<int>(
        std::clamp<std::int64_t>(base::ceil_div(wanted, std::max<std::int64_t>(n, 1)), 1, units));
    const int per_item = base::ceil_div(units, parts);
    plan.items.clear();
    plan.requests.clear();
    plan.num_tokens = batch.num_qo_tokens();
    plan.max_slot = -1;
    plan.has_drafts = false;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t slot = batch.state_indices[static_cast<std::size_t>(i)];
      if (slot < 0 || batch.qo_len(i) == 0) continue;
      Work work = work_of(batch, i);
      plan.max_slot = std::max<std::int64_t>({plan.max_slot, slot, work.drafts.slot});
      plan.has_drafts = plan.has_drafts || work.drafts.num_tokens > 0;
      work.take_heads(0, units);
      plan.requests.push_back(work);
      for (int unit = 0; unit < units; unit += per_item) {
        work.take_heads(unit, std::min(per_item, units - unit));
        plan.items.push_back(work);
      }
    }
    std::stable_sort(plan.items.begin(), plan.items.end(),
                     [](const Work& a, const Work& b) { return a.size() > b.size(); });
    return {};
  }

  struct Job {
    const LinearBackend* backend;
    const LinearPlan* plan;
    linear::Params params;
    linear::ConvolutionParams convolution;
  };

  void run_recurrence(const LinearPlan& plan, const LayerCall& call) {
    Job job{this, &plan, recurrence_params(spec_, call), {}};
    job.params.batch_invariant = batch_invariant_;
    executor_.run(
        static_cast<std::int64_t>(plan.items.size()),
        [](void* context, std::int64_t i, int thread) {
          const Job& j = *static_cast<const Job*>(context);
          const Work& work = j.plan->items[static_cast<std::size_t>(i)];
          j.backend->recur(j.params, work.known, *j.plan, thread);
          if (work.drafts.num_tokens == 0) return;
          copy_state(j.params, work);
          j.backend->recur(j.params, work.drafts, *j.plan, thread);
        },
        &job);
  }

  void recur(const linear::Params& params, const Item& item, const LinearPlan& plan,
             int thread) const {
    if (item.num_tokens == 0) return;
    if (kernel_ == nullptr) {
      linear::run_reference(params, item);
    } else {
      kernel_->run(params, item, plan.scratch + thread * scratch_floats());
    }
  }

  /// The drafts' heads start from what the known tokens left.
  static void copy_state(const linear::Params& p, const Work& work) {
    const std::int64_t head = static_cast<std::int64_t>(p.dv) * p.dk;
    const std::int64_t first = work.known.first_head * head;
    std::copy_n(p.state + work.known.slot * p.state_slot + first, work.known.num_heads * head,
                p.state + work.drafts.slot * p.state_slot + first);
  }

  void run_convolution(const LinearPlan& plan, const LayerCall& call) {
    Job job{this, &plan, {}, convolution_params(spec_, call)};
    executor_.run(
        static_cast<std::int64_t>(plan.items.size()),
        [](void* context, std::int64_t i, int thread) {
          const Job& j = *static_cast<const Job*>(context);
          const Work& work = j.plan->items[static_cast<std::size_t>(i)];
          for (const Item& item : {work.known, work.drafts}) {
            const int first = item.first_head * kConvolutionChannels;
            const int unclipped = (item.first_head + item.num_heads) * kConvolutionChannels;
            const int end = std::min(unclipped, j.convolution.channels);
            if (j.backend->kernel_ == nullptr) {
              linear::convolve(j.convolution, item, first, end);
              continue;
            }
            for (int c = first; c < end; c += kConvolutionChannels)
              j.backend->kernel_->convolve(j.convolution, item, c,
                                           std::min(c + kConvolutionChannels, end),
                                           j.plan->scratch + thread * j.backend->scratch_floats());
          }
        },
        &job);
  }

  /// The drafts' slots get the history that the known tokens leave, before either slot moves.
  void fork_convolution(const LinearPlan& plan, const LayerCall& call) {
    Job job{this, &plan, {}, convolution_params(spec_, call)};
    executor_.run(
        static_cast<std::int64_t>(plan.requests.size()),
        [](void* context, std::int64_t i, int) {
          const Job& j = *static_cast<const Job*>(context);
          const Work& work = j.plan->requests[static_cast<std::size_t>(i)];
          if (work.drafts.num_tokens == 0) return;
          const linear::ConvolutionParams& p = j.convolution;
          const std::int64_t size = p.bf16 ? sizeof(std::uint16_t) : sizeof(float);
          auto* const state = static_cast<std::byte*>(p.state);
          std::copy_n(state + work.known.slot * p.state_slot * size,
                      static_cast<std::int64_t>(p.channels) * (p.kernel - 1) * size,
                      state + work.drafts.slot * p.state_slot * size);
          Item known = work.known;
          known.slot = work.drafts.slot;
          linear::advance_state(p, known);
        },
        &job);
  }

  void advance_convolution(const LinearPlan& plan, const LayerCall& call) {
    Job job{this, &plan, {}, convolution_params(spec_, call)};
    executor_.run(
        static_cast<std::int64_t>(plan.requests.size()),
        [](void* context, std::int64_t i, int) {
          const Job& j = *static_cast<const Job*>(context);
          const Work& work = j.plan->requests[static_cast<std::size_t>(i)];
          linear::advance_state(j.convolution, work.known);
          linear::advance_state(j.convolution, work.drafts);
        },
        &job);
  }

  const BackendDescriptor& descriptor_;
  AttentionSpec spec_;
  Executor& executor_;
  bool batch_invariant_;
  const linear::Kernel* kernel_;  ///< null: the double-precision recurrence
};

/// A factory serves the CPU rows of its own descriptor.
Status check_declared(const BackendDescriptor& descriptor, const BackendContext& context) {
  if (context.device.kind != DeviceKind::cpu)
    return unsupported(
        join(descriptor.name, ": this factory serves CPUs, not ", name(context.device.kind)),
        {{std::string(descriptor.name), "device", "cpu", std::string(name(context.device.kind))}});
  for (const Capability& row : descriptor.capabilities)
    if (row.device == DeviceKind::cpu && row.variants.contains(context.spec.variant)) return {};
  return unsupported(
      join(descriptor.name, " does not serve ", name(context.spec.variant), " on a CPU"),
      {{std::string(descriptor.name), "variant", "one its rows declare",
        std::string(name(context.spec.variant))}});
}

}  // namespace

Result<std::unique_ptr<Backend>> make_linear(const BackendDescriptor& descriptor,
                                             const BackendContext& context, LinearKernels kernels) {
  if (Status s = check_declared(descriptor, context); !s.ok()) return s;
  if (Status s = validate_linear_spec(context.spec); !s.ok()) return s;
  if (context.executor == nullptr)
    return invalid_argument(join(descriptor.name, ": BackendContext::executor is not set"));
  const linear::Kernel* kernel =
      kernels == LinearKernels::reference ? nullptr : strongest_kernel(context.device.isa);
  return std::unique_ptr<Backend>(std::make_unique<LinearBackend>(descriptor, context, kernel));
}

}  // namespace attune::backends::shared
