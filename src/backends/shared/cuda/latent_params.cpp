#include "backends/shared/cuda/latent_params.hpp"

#include "attention/lse.hpp"

namespace attune::backends::shared::cuda {

kernels::mla_decode::Params latent_params(const AttentionSpec& spec,
                                          const attention::BatchFacts& facts,
                                          const plan::LatentShape& shape, const LayerCall& call) {
  kernels::mla_decode::Params p;
  p.q = call.q.data;
  p.q_tokens = facts.num_qo_tokens;
  p.q_token_stride = call.q.stride[0];
  p.q_head_stride = call.q.stride[1];
  p.o = call.o.data;
  p.o_token_stride = call.o.stride[0];
  p.o_head_stride = call.o.stride[1];
  if (call.lse.defined()) {
    p.lse = call.lse.as<float>();
    p.lse_token_stride = call.lse.stride[0];
    p.lse_head_stride = call.lse.stride[1];
  }
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

}  // namespace attune::backends::shared::cuda
