#include "backends/shared/dense_glue.hpp"

#include <algorithm>

#include <attune/compressed_call.hpp>
#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "base/join.hpp"
#include "base/math.hpp"
#include "kernels/append_kv/append_kv.hpp"
#include "plan/workspace.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::backends::shared {

CacheStrides strides_of(const TensorView& cache, KvLayout layout) {
  if (!tensor::stores_v_apart(layout)) return {cache.stride[0], cache.stride[1], 0};
  const bool hnd = layout == KvLayout::hnd;
  return {cache.stride[0], cache.stride[hnd ? 2 : 1], cache.stride[hnd ? 1 : 2]};
}

attention::PagedKv paged_keys(const LayerCall& call, KvLayout layout, std::int32_t page_size) {
  const TensorView& v_cache = tensor::stores_v_apart(layout) ? call.v_cache : call.k_cache;
  const CacheStrides k = strides_of(call.k_cache, layout);
  const CacheStrides v = strides_of(v_cache, layout);
  return {.k = call.k_cache.data,
          .v = v_cache.data,
          .k_page_stride = k.page,
          .k_token_stride = k.token,
          .k_head_stride = k.head,
          .v_page_stride = v.page,
          .v_token_stride = v.token,
          .v_head_stride = v.head,
          .page_size = page_size};
}

attention::PagedKv ragged_keys(const LayerCall& call, Variant variant) {
  const TensorView& v = is_latent(variant) ? call.k : call.v;
  return {.k = call.k.data,
          .v = v.data,
          .k_page_stride = call.k.stride[0],
          .k_head_stride = call.k.stride[1],
          .v_page_stride = v.stride[0],
          .v_head_stride = v.stride[1]};
}

kernels::dense::Rows rows_of(const TensorView& view) {
  return {.data = view.data,
          .dtype = view.dtype,
          .token_stride = view.stride[0],
          .head_stride = view.stride[1]};
}

void set_lse(const LayerCall& call, kernels::dense::Params& params) {
  if (!call.lse.defined()) return;
  params.lse = call.lse.as<float>();
  params.lse_token_stride = call.lse.stride[0];
  params.lse_head_stride = call.lse.stride[1];
}

Status check_workspace(const Workspace& workspace, std::size_t wanted) {
  if (wanted == 0) return {};
  if (workspace.device == nullptr)
    return invalid_argument(base::join("the workspace is a null pointer: want ", wanted, " bytes"));
  if (workspace.device_bytes < wanted)
    return invalid_argument(base::join("the workspace is too small: want ", wanted, " bytes, have ",
                                       workspace.device_bytes));
  if (reinterpret_cast<std::uintptr_t>(workspace.device) % plan::WorkspaceCutter::kAlignment != 0)
    return invalid_argument("the workspace must be aligned to 256 bytes");
  return {};
}

Status append_kv(const LayerCall& call, const AttentionSpec& spec, std::int32_t page_size,
                 KvLayout layout, Executor& executor) {
  if (Status s = attention::validate_append(call, spec, page_size, layout); !s.ok()) return s;
  if (call.slot_mapping.empty()) return {};
  if (Status s = attention::validate_slots(call.slot_mapping, call.k_cache.shape[0] * page_size);
      !s.ok())
    return s;

  struct Work {
    // Keys, or latents; values, or index keys; compressed keys.
    kernels::append_kv::Params params[3];
    int count = 1;
    std::int64_t tokens = 0;
    std::int64_t tokens_per_item = 0;
    bool packed = false;
  } work;
  const auto fill = [&](const TensorView& in, const TensorView& cache, int head_dim, float scale,
                        const float* scale_per_head) {
    const CacheStrides strides = strides_of(cache, layout);
    return kernels::append_kv::Params{.in = in.data,
                                      .in_dtype = in.dtype,
                                      .in_token_stride = in.stride[0],
                                      .in_head_stride = in.stride[1],
                                      .cache = cache.data,
                                      .cache_dtype = spec.kv_dtype,
                                      .page_stride = strides.page,
                                      .token_stride = strides.token,
                                      .head_stride = strides.head,
                                      .page_size = page_size,
                                      .num_heads = spec.num_kv_heads,
                                      .head_dim = head_dim,
                                      .scale = scale,
                                      .scale_per_head = scale_per_head,
                                      .slot_mapping = call.slot_mapping.data()};
  };
  work.params[0] =
      fill(call.k, call.k_cache, spec.head_dim_qk, call.k_scale, call.k_scale_per_head);
  if (tensor::stores_v_apart(layout)) {
    work.params[1] =
        fill(call.v, call.v_cache, spec.head_dim_vo, call.v_scale, call.v_scale_per_head);
    work.count = 2;
  }
  const bool compresses = call.compressed != nullptr;
  const std::int32_t ratio = compresses ? spec.compress_ratio : 1;
  const auto slots = compresses ? call.compressed->slot_mapping : call.slot_mapping;
  const auto add_vectors = [&](const TensorView& in, const TensorView& cache) {
    work.params[work.count++] = {.in = in.data,
                                 .in_dtype = in.dtype,
                                 .in_token_stride = in.stride[0],
                                 .cache = cache.data,
                                 .cache_dtype = cache.dtype,
                                 .page_stride = cache.stride[0],
                                 .token_stride = cache.stride[1],
                                 .page_size = page_size / ratio,
                                 .tokens_per_row = ratio,
                                 .num_heads = 1,
                                 .head_dim = static_cast<int>(in.shape[1]),
                                 .slot_mapping = slots.data()};
  };
  if (call.sparse != nullptr && call.sparse->index_k.defined())
    add_vectors(call.sparse->index_k, call.sparse->index_cache);
  if (compresses) {
    if (Status s = attention::validate_slots(slots, call.compressed->cache.shape[0] * page_size);
        !s.ok())
      return s;
    add_vectors(call.compressed->k, call.compressed->cache);
  }
  work.tokens = static_cast<std::int64_t>(call.slot_mapping.size());
  work.packed = layout == KvLayout::mla_latent_fp8;
  work.tokens_per_item = 64;  // a decode step stays on the calling thread
  executor.run(
      base::ceil_div(work.tokens, work.tokens_per_item),
      [](void* context, std::int64_t item, int) {
        const Work& w = *static_cast<const Work*>(context);
        const std::int64_t first = item * w.tokens_per_item;
        const std::int64_t last = std::min(first + w.tokens_per_item, w.tokens);
        if (w.packed) kernels::append_kv::run_packed(w.params[0], first, last);
        for (int i = w.packed ? 1 : 0; i < w.count; ++i)
          kernels::append_kv::run(w.params[i], first, last);
      },
      &work);
  return {};
}

}  // namespace attune::backends::shared
