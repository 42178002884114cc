#include "backends/shared/cpu_run.hpp"

#include <cstdint>

#include "kernels/merge_states/merge_states.hpp"

namespace attune::backends::shared {
namespace {

namespace dense = kernels::dense;

/// `p` for another of a head's queries and the keys it meets.
dense::Params with_query(dense::Params p, int query, std::int64_t num_tokens) {
  const std::int64_t columns = std::int64_t{query} * p.head_dim_qk;
  p.q.data = static_cast<char*>(p.q.data) + columns * static_cast<std::int64_t>(size_of(p.q.dtype));
  p.visible += query * num_tokens;
  return p;
}

}  // namespace

void run_plan(const Setup& setup, const CpuPlan& plan, const dense::Params& params,
              Executor& executor) {
  if (plan.items.empty()) return;
  struct Work {
    const CpuPlan& plan;
    dense::Params decode;
    dense::Params prefill;
    dense::Kernel decode_kernel;
    dense::Kernel prefill_kernel;
  } work{.plan = plan,
         .decode = params,
         .prefill = params,
         .decode_kernel = setup.decode->run,
         .prefill_kernel = setup.prefill->run};
  work.decode.scratch = decode_scratch(setup);
  work.prefill.scratch = prefill_scratch(setup);
  executor.run(
      static_cast<std::int64_t>(plan.items.size()),
      [](void* context, std::int64_t n, int thread) {
        const Work& w = *static_cast<const Work*>(context);
        const WorkItem& item = w.plan.items[static_cast<std::size_t>(n)];
        void* const scratch = w.plan.parts.scratch + thread * w.plan.scratch_bytes;
        const dense::Params& p = item.decodes ? w.decode : w.prefill;
        const dense::Kernel kernel = item.decodes ? w.decode_kernel : w.prefill_kernel;
        if (item.query == 0) return kernel(p, item.item, scratch);
        kernel(with_query(p, item.query, w.plan.facts.num_qo_tokens), item.item, scratch);
      },
      &work);
  executor.run(
      static_cast<std::int64_t>(plan.merges.size()),
      [](void* context, std::int64_t n, int thread) {
        const Work& w = *static_cast<const Work*>(context);
        auto* const sums =
            reinterpret_cast<float*>(w.plan.parts.scratch + thread * w.plan.scratch_bytes);
        kernels::merge_states::run(w.decode, w.plan.merges[static_cast<std::size_t>(n)],
                                   w.plan.sources.data(), sums);
      },
      &work);
}

}  // namespace attune::backends::shared
