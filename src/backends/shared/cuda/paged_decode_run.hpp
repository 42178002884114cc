// How a plan of paged_planner.hpp reaches the card, and how its decode rows are run: over a batch's
// pages, or over lists that other kernels leave (kernels/paged_decode/sm80, Params::lengths).
#pragma once

#include <attune/backend.hpp>

#include "attention/lse.hpp"
#include "backends/shared/cuda/outputs.hpp"
#include "backends/shared/cuda/paged_planner.hpp"

namespace attune::backends::shared::paged {

/// A plan's lists to its workspace, its counters to zero.
[[nodiscard]] Status upload(const PagedPlan& plan, Stream stream);
[[nodiscard]] Status zero_counters(const PagedPlan& plan, Stream stream);
/// Once a plan: runs leave them empty, refreshes leave them alone.
[[nodiscard]] Status empty_mailboxes(const PagedPlan& plan, Stream stream);

template <class Element>
[[nodiscard]] Element element_of(DType t) {
  if (t == DType::f32) return Element::f32;
  return t == DType::bf16 ? Element::bf16 : Element::f16;
}

/// What the Params of decode and prefill kernels share.
template <class Params>
void fill_tensors(const AttentionSpec& spec, const LayerCall& call, Params& p) {
  using Element = decltype(p.q_element);
  p.q = call.q.data;
  p.q_token_stride = call.q.stride[0];
  p.q_head_stride = call.q.stride[1];
  p.q_element = element_of<Element>(call.q.dtype);
  cuda::set_outputs(call, p);
  p.o_element = element_of<Element>(call.o.dtype);
  p.head_dim_qk = spec.head_dim_qk;
  p.head_dim_vo = spec.head_dim_vo;
  p.num_kv_heads = spec.num_kv_heads;
  p.gqa_group_size = spec.gqa_group_size();
  const float k_scale = call.k_scale_per_head == nullptr ? call.k_scale : 1.0f;
  p.scale_log2 = spec.sm_scale * call.q_scale * k_scale * static_cast<float>(attention::kLog2E);
  p.v_scale = call.v_scale_per_head == nullptr ? call.v_scale : 1.0f;
  p.k_scale_per_head = call.k_scale_per_head;
  p.v_scale_per_head = call.v_scale_per_head;
  p.soft_cap_log2 = spec.logits_soft_cap * static_cast<float>(attention::kLog2E);
  p.sinks = spec.sinks ? call.sinks : nullptr;
  p.alibi_slopes = spec.alibi ? call.alibi_slopes : nullptr;
}

/// Everything of a plan's decode launch but the keys.
[[nodiscard]] kernels::paged_decode::sm80::Params decode_params(const Setup& setup,
                                                                const PagedPlan& plan,
                                                                const LayerCall& call);

/// `p`: with its keys.
[[nodiscard]] Status launch_decode(const Setup& setup, const PagedPlan& plan,
                                   kernels::paged_decode::sm80::Params p, Stream stream);

}  // namespace attune::backends::shared::paged
