#include "backends/shared/cuda/latent_params.hpp"

#include "attention/lse.hpp"
#include "backends/shared/cuda/outputs.hpp"

namespace attune::backends::shared::cuda {

kernels::mla_decode::Params latent_params(const AttentionSpec& spec,
                                          const attention::BatchFacts& facts,
                                          const plan::LatentShape& shape, const LayerCall& call) {
  kernels::mla_decode::Params p;
  p.q = call.q.data;
  p.q_tokens = facts.num_qo_tokens;
  p.q_token_stride = call.q.stride[0];
  p.q_head_stride = call.q.stride[1];
  set_outputs(call, p);
  p.lanes = shape.lanes;
  p.num_heads = spec.num_qo_heads;
  p.block_rows = shape.rows;
  p.heads_per_block = shape.heads_per_block;
  p.tokens_per_block = shape.tokens_per_block;
  p.head_blocks = shape.head_blocks;
  p.dim_qk = spec.head_dim_qk;
  p.dim_vo = spec.head_dim_vo;
  p.scale_log2 =
      spec.sm_scale * call.q_scale * call.k_scale * static_cast<float>(attention::kLog2E);
  p.v_scale = call.v_scale;
  return p;
}

kernels::append_kv::sm80::Params latent_append(const LayerCall& call, const TensorView& in,
                                               const TensorView& cache, int columns, float scale,
                                               std::int32_t page_size) {
  return {.k = {.in = in.data,
                .in_token_stride = in.stride[0],
                .cache = cache.data,
                .page_stride = cache.stride[0],
                .token_stride = cache.stride[1],
                .head_dim = columns,
                .scale = scale},
          .v = {},
          .in_dtype = in.dtype,
          .cache_dtype = cache.dtype,
          .page_size = page_size,
          .num_heads = 1,
          .num_tokens = static_cast<std::int64_t>(call.slot_mapping.size()),
          .num_slots = cache.shape[0] * page_size,
          .slot_mapping = call.slot_mapping.data()};
}

}  // namespace attune::backends::shared::cuda
