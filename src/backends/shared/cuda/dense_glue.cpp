#include "backends/shared/cuda/dense_glue.hpp"

#include <cstdint>

#include "base/join.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/append_kv/sm80/launch.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared::cuda {

namespace append = kernels::append_kv::sm80;

Status check_workspace(const Workspace& workspace, std::size_t wanted) {
  if (workspace.device == nullptr || workspace.device_bytes < wanted)
    return invalid_argument(base::join("the workspace is too small: want ", wanted, " bytes, have ",
                                       workspace.device == nullptr ? 0 : workspace.device_bytes));
  if (reinterpret_cast<std::uintptr_t>(workspace.device) % plan::WorkspaceCutter::kAlignment != 0)
    return invalid_argument("the workspace must be aligned to 256 bytes");
  return {};
}

Status check_refresh(const attention::BatchFacts& plan, const attention::BatchFacts& batch) {
  if (batch.source == plan.source && batch.num_qo_tokens == plan.num_qo_tokens) return {};
  return invalid_argument(base::join("refresh wants the plan's ", plan.num_qo_tokens,
                                     " query tokens from the same source of keys, have ",
                                     batch.num_qo_tokens, ": make a new plan"));
}

Status append_kv(const LayerCall& call, const BackendContext& context, Stream stream) {
  const AttentionSpec& spec = context.spec;
  if (Status s = attention::validate_append(call, spec, context.page_size, context.kv_layout);
      !s.ok())
    return s;
  const bool hnd = context.kv_layout == KvLayout::hnd;
  const auto side = [&](const TensorView& in, const TensorView& cache, float scale,
                        const float* scale_per_head) {
    return append::Side{.in = in.data,
                        .in_token_stride = in.stride[0],
                        .in_head_stride = in.stride[1],
                        .cache = cache.data,
                        .page_stride = cache.stride[0],
                        .token_stride = cache.stride[hnd ? 2 : 1],
                        .head_stride = cache.stride[hnd ? 1 : 2],
                        .head_dim = static_cast<int>(in.shape[2]),
                        .scale = scale,
                        .scale_per_head = scale_per_head};
  };
  return append::launch({.k = side(call.k, call.k_cache, call.k_scale, call.k_scale_per_head),
                         .v = side(call.v, call.v_cache, call.v_scale, call.v_scale_per_head),
                         .in_dtype = call.k.dtype,
                         .cache_dtype = spec.kv_dtype,
                         .page_size = context.page_size,
                         .num_heads = spec.num_kv_heads,
                         .num_tokens = static_cast<std::int64_t>(call.slot_mapping.size()),
                         .num_slots = call.k_cache.shape[0] * context.page_size,
                         .slot_mapping = call.slot_mapping.data()},
                        device::cuda::native(stream));
}

}  // namespace attune::backends::shared::cuda
