// A plan's run: its items, then the merges of rows that were cut.
#pragma once

#include <attune/device.hpp>

#include "backends/shared/cpu_planner.hpp"
#include "kernels/dense/params.hpp"

namespace attune::backends::shared {

/// `params` are the call's, over the plan's visible keys; places of scratch are filled in here.
void run_plan(const Setup& setup, const CpuPlan& plan, const kernels::dense::Params& params,
              Executor& executor);

}  // namespace attune::backends::shared
