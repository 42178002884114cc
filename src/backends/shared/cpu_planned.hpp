// The frame of a CPU backend whose plan is made on the host: what a workspace has to hold, plans and
// their refreshes, for any setup that has `workspace_bytes` and `make_plan`.
#pragma once

#include <cstddef>
#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>
#include <attune/validate.hpp>

#include "backends/shared/dense_glue.hpp"

namespace attune::backends::shared {

template <class Setup, class PlanOfSetup>
class CpuPlanned : public Backend {
 public:
  CpuPlanned(const BackendContext& context, const BackendDescriptor& descriptor, const Setup& setup)
      : context_(context),
        descriptor_(descriptor),
        setup_(setup),
        executor_(context.executor != nullptr ? context.executor : &caller_) {}

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return descriptor_; }

  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override {
    return {.device_bytes = workspace_bytes(setup_, bounds)};
  }

  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace, Stream) override {
    const auto facts = checked(batch, workspace);
    if (!facts.ok()) return facts.status();
    auto made = std::make_unique<PlanOfSetup>();
    make_plan(setup_, batch, *facts, workspace, *made);
    return PlanHandle(std::move(made));
  }

  Status refresh(Plan& plan, const BatchView& batch, Stream) override {
    auto& mine = static_cast<PlanOfSetup&>(plan);
    const auto facts = checked(batch, mine.workspace);
    if (!facts.ok()) return facts.status();
    make_plan(setup_, batch, *facts, Workspace(mine.workspace), mine);
    return {};
  }

  Status append_kv(const LayerCall& call, Stream) override {
    return shared::append_kv(call, context_.spec, context_.page_size, context_.kv_layout,
                             *executor_);
  }

 protected:
  /// What this backend cannot count or read in a batch that is valid as such.
  [[nodiscard]] virtual Status check(const BatchView& batch,
                                     const attention::BatchFacts& facts) const = 0;

  BackendContext context_;
  const BackendDescriptor& descriptor_;
  Setup setup_;
  CallerThread caller_;
  Executor* executor_;

 private:
  [[nodiscard]] Result<attention::BatchFacts> checked(const BatchView& batch,
                                                      const Workspace& workspace) const {
    auto facts = attention::validate_batch(batch, context_.spec, context_.page_size);
    if (!facts.ok()) return facts;
    if (Status s = check(batch, *facts); !s.ok()) return s;
    const std::size_t wanted = workspace_bytes(setup_, attention::bounds_of(batch));
    if (Status s = check_workspace(workspace, wanted); !s.ok()) return s;
    return facts;
  }
};

}  // namespace attune::backends::shared
