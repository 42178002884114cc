#include "backends/shared/linear_checks.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/join.hpp"
#include "kernels/linear/policy.hpp"
#include "tensor/shape_match.hpp"

namespace attune::backends::shared {
namespace {

using base::join;
using kernels::linear::Activations;
using kernels::linear::Family;

bool is_delta_rule(Variant v) { return v == Variant::gdn || v == Variant::kda; }

Status check(const TensorView& view, std::string_view tensor_name, DType dtype,
             std::initializer_list<std::int64_t> shape, bool written = false) {
  return tensor::match(view, {.name = tensor_name,
                              .dtype = dtype,
                              .shape = {shape.begin(), shape.size()},
                              .written = written});
}

Status missing(std::string_view what, const AttentionSpec& spec) {
  return invalid_argument(join("linear attention: ", name(spec.variant),
                               " needs LinearCall::", what, ", which is not set"));
}

/// State rows are walked with fixed inner strides: everything but the slot must be dense.
Status check_state(const TensorView& state, std::string_view what, DType dtype,
                   std::initializer_list<std::int64_t> row, std::int64_t max_slot) {
  std::array<std::int64_t, TensorView::kMaxRank> shape{tensor::kAnySize};
  std::size_t rank = 1;
  for (std::int64_t extent : row) shape[rank++] = extent;
  if (Status s = tensor::match(
          state, {.name = what, .dtype = dtype, .shape = {shape.data(), rank}, .written = true});
      !s.ok())
    return s;
  std::int64_t dense = 1;
  for (std::size_t i = rank; i-- > 1;) {
    if (state.stride[i] != dense && shape[i] > 1)
      return invalid_argument(join("linear attention: ", what,
                                   " must be dense within a slot; stride ", i, " is ",
                                   state.stride[i], ", wanted ", dense));
    dense *= shape[i];
  }
  if (max_slot >= state.shape[0])
    return invalid_argument(join("linear attention: state_indices name slot ", max_slot, ", but ",
                                 what, " has ", state.shape[0], " slots"));
  return {};
}

Activations rows(const TensorView& view) { return {view.data, view.stride[0]}; }

/// What only softmax over keys has. Ignoring it would be another model.
Status check_asks_no_softmax(const AttentionSpec& s) {
  struct Asked {
    std::string_view what;
    bool yes;
  };
  const Asked all[] = {{"a sliding window", s.window_left >= 0 || s.window_right >= 0},
                       {"a soft cap", s.logits_soft_cap > 0.0f},
                       {"sinks", s.sinks},
                       {"ALiBi", s.alibi},
                       {"a relative bias", s.relative_bias},
                       {"a custom mask", s.custom_mask},
                       {"a block mask", s.block_mask},
                       {"a score function", s.score_mod},
                       {"an attention chunk", s.attention_chunk > 0},
                       {"a temperature by position", s.xai_temperature_len > 0},
                       {"scales of a KV cache", s.kv_scales || s.per_head_scales},
                       {"another kind than decoder", s.kind != AttentionKind::decoder}};
  for (const Asked& asked : all)
    if (asked.yes)
      return unsupported(
          join("linear attention: ", name(s.variant), " has no softmax over keys, so nothing for ",
               asked.what, " to act on"),
          {{std::string(name(s.variant)), "softmax", "none", std::string(asked.what)}});
  if (s.kv_dtype != DType::f32)
    return unsupported(
        join("linear attention keeps its state in fp32, not ", name(s.kv_dtype)),
        {{std::string(name(s.variant)), "kv_dtype", "fp32", std::string(name(s.kv_dtype))}});
  return {};
}

}  // namespace

Status validate_linear_spec(const AttentionSpec& s) {
  if (Status e = check_asks_no_softmax(s); !e.ok()) return e;
  if (s.q_dtype != DType::f32 && s.q_dtype != DType::bf16)
    return unsupported(
        join("linear attention reads fp32 or bf16 activations, not ", name(s.q_dtype)),
        {{std::string(name(s.variant)), "q_dtype", "fp32 or bf16", std::string(name(s.q_dtype))}});
  if (s.o_dtype != s.q_dtype)
    return unsupported(join("linear attention writes o in the activations' dtype ", name(s.q_dtype),
                            ", not ", name(s.o_dtype)),
                       {{std::string(name(s.variant)), "o_dtype", std::string(name(s.q_dtype)),
                         std::string(name(s.o_dtype))}});
  const bool convolves = s.variant != Variant::lightning;
  if (convolves && (s.conv_kernel < 1 || s.conv_kernel > kernels::linear::kMaxTaps))
    return invalid_argument(join("AttentionSpec::conv_kernel is ", s.conv_kernel, "; ",
                                 name(s.variant), " wants 1 to ", kernels::linear::kMaxTaps));
  if (s.variant == Variant::short_conv) {
    if (s.conv_dim < 1)
      return invalid_argument(
          join("AttentionSpec::conv_dim is ", s.conv_dim, "; wanted at least 1"));
    return {};
  }
  const int k_heads = s.linear_num_k_heads;
  const int v_heads = s.linear_num_v_heads;
  if (k_heads < 1 || v_heads < 1 || v_heads % k_heads != 0)
    return invalid_argument(join("linear attention: ", v_heads, " value heads over ", k_heads,
                                 " key heads; wanted a positive multiple"));
  if (s.linear_head_dim_k < 1 || s.linear_head_dim_v < 1)
    return invalid_argument(join("linear attention: state dims ", s.linear_head_dim_k, " x ",
                                 s.linear_head_dim_v, "; wanted at least 1 x 1"));
  const std::int64_t channels = 2 * static_cast<std::int64_t>(k_heads) * s.linear_head_dim_k +
                                static_cast<std::int64_t>(v_heads) * s.linear_head_dim_v;
  if (convolves && s.conv_dim != channels)
    return invalid_argument(join("AttentionSpec::conv_dim is ", s.conv_dim,
                                 "; q, k and v heads have ", channels, " channels"));
  return {};
}

Status check_linear_drafts(const BatchView& batch) {
  const auto n = static_cast<std::size_t>(batch.batch_size());
  const bool verify = batch.form == BatchForm::target_verify;
  if (!batch.custom_mask.empty() || !batch.custom_mask_indptr.empty())
    return unsupported(
        "linear attention verifies chains of draft tokens: a tree would need a state a branch",
        {{"linear", "tree_verify", "a chain, without a mask", "a custom mask"}});
  if (!verify && batch.draft_len.empty() && batch.draft_states.empty()) return {};
  if (!verify)
    return invalid_argument(
        join("draft_len and draft_states belong to target_verify, not to ", name(batch.form)));
  if (batch.draft_len.size() != n || batch.draft_states.size() != n)
    return invalid_argument(
        join("target_verify over linear attention wants draft_len and "
             "draft_states for each of ",
             n, " requests, have ", batch.draft_len.size(), " and ", batch.draft_states.size(),
             ": a state cannot be cut back"));
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t rows = batch.qo_len(static_cast<std::int64_t>(i));
    if (batch.draft_len[i] < 0 || batch.draft_len[i] > rows)
      return invalid_argument(
          join("draft_len[", i, "] = ", batch.draft_len[i], " of ", rows, " query tokens"));
    const bool wanted = batch.draft_len[i] > 0 && batch.state_indices[i] >= 0;
    if (wanted != (batch.draft_states[i] >= 0))
      return invalid_argument(join("draft_states[", i, "] = ", batch.draft_states[i],
                                   wanted ? "; its drafts want a slot of their own"
                                          : "; without drafts to verify it must be -1"));
  }
  return {};
}

Status validate_linear_batch(const AttentionSpec& spec, const BatchView& batch) {
  const auto n = static_cast<std::size_t>(batch.batch_size());
  if (!batch.qo_indptr.empty() && batch.qo_indptr.front() != 0)
    return invalid_argument(join("qo_indptr begins at ", batch.qo_indptr.front(), "; wanted 0"));
  for (std::size_t i = 0; i < n; ++i)
    if (batch.qo_indptr[i + 1] < batch.qo_indptr[i])
      return invalid_argument(join("qo_indptr falls from ", batch.qo_indptr[i], " to ",
                                   batch.qo_indptr[i + 1], " at request ", i));
  for (std::size_t i = 0; i < n && batch.form == BatchForm::decode; ++i)
    if (batch.qo_indptr[i + 1] - batch.qo_indptr[i] > 1)
      return invalid_argument(join("a decode batch has one token a request; request ", i, " has ",
                                   batch.qo_indptr[i + 1] - batch.qo_indptr[i]));
  if (batch.state_indices.size() != n)
    return invalid_argument(join("state_indices has ", batch.state_indices.size(), " entries for ",
                                 n, " requests; ", name(spec.variant), " needs one slot each"));
  if (Status s = check_linear_drafts(batch); !s.ok()) return s;
  std::vector<std::int32_t> live;
  for (const auto slots : {batch.state_indices, batch.draft_states})
    std::ranges::copy_if(slots, std::back_inserter(live), [](auto slot) { return slot >= 0; });
  std::sort(live.begin(), live.end());
  if (const auto twice = std::adjacent_find(live.begin(), live.end()); twice != live.end())
    return invalid_argument(join("state_indices and draft_states name slot ", *twice,
                                 " twice; two would write one state"));
  return {};
}

Status validate_linear_call(const AttentionSpec& s, const LayerCall& call, std::int64_t num_tokens,
                            std::int64_t max_slot) {
  if (call.linear == nullptr)
    return invalid_argument(join("LayerCall::linear is not set; ", name(s.variant), " needs it"));
  const LinearCall& c = *call.linear;
  const DType t = s.q_dtype;
  const bool convolves = s.variant != Variant::lightning;
  if (convolves) {
    if (Status e = check(c.conv_input, "conv_input", t, {num_tokens, s.conv_dim}); !e.ok())
      return e;
    if (c.conv_weight == nullptr) return missing("conv_weight", s);
    if (s.conv_kernel > 1)
      if (Status e =
              check_state(c.conv_state, "conv_state", t, {s.conv_dim, s.conv_kernel - 1}, max_slot);
          !e.ok())
        return e;
  }
  if (s.variant == Variant::short_conv)
    return check(call.o, "o", t, {num_tokens, s.conv_dim}, true);

  const std::int64_t hk = s.linear_num_k_heads;
  const std::int64_t hv = s.linear_num_v_heads;
  const std::int64_t dk = s.linear_head_dim_k;
  const std::int64_t dv = s.linear_head_dim_v;
  if (Status e = check(call.o, "o", t, {num_tokens, hv * dv}, true); !e.ok()) return e;
  if (Status e = check_state(c.state, "state", DType::f32, {hv, dv, dk}, max_slot); !e.ok())
    return e;
  if (s.variant == Variant::lightning) {
    if (c.slopes == nullptr) return missing("slopes", s);
    if (Status e = check(c.q, "q", t, {num_tokens, hk * dk}); !e.ok()) return e;
    if (Status e = check(c.k, "k", t, {num_tokens, hk * dk}); !e.ok()) return e;
    return check(c.v, "v", t, {num_tokens, hv * dv});
  }
  if (c.a_log == nullptr) return missing("a_log", s);
  if (c.dt_bias == nullptr) return missing("dt_bias", s);
  const std::int64_t gates = s.variant == Variant::kda ? hv * dk : hv;
  if (Status e = check(c.gate, "gate", t, {num_tokens, gates}); !e.ok()) return e;
  if (is_delta_rule(s.variant)) return check(c.beta, "beta", t, {num_tokens, hv});
  return {};
}

kernels::linear::Params recurrence_params(const AttentionSpec& s, const LayerCall& call) {
  const LinearCall& c = *call.linear;
  kernels::linear::Params p;
  p.bf16 = s.q_dtype == DType::bf16;
  p.num_k_heads = s.linear_num_k_heads;
  p.num_v_heads = s.linear_num_v_heads;
  p.dk = s.linear_head_dim_k;
  p.dv = s.linear_head_dim_v;
  const int key_channels = p.num_k_heads * p.dk;
  const int value_channels = p.num_v_heads * p.dv;
  switch (s.variant) {
    case Variant::kda: p.family = Family::kda; break;
    case Variant::mamba2: p.family = Family::mamba2; break;
    case Variant::lightning: p.family = Family::lightning; break;
    default: p.family = Family::gdn; break;
  }
  if (s.variant == Variant::lightning) {
    p.q = rows(c.q);
    p.k = rows(c.k);
    p.v = rows(c.v);
  } else {
    p.conv_kernel = s.conv_kernel;
    p.conv_silu = c.conv_silu;
    p.conv_input = rows(c.conv_input);
    // mamba2: x | B | C, and B is the key, C the query; the others: q | k | v.
    p.q_channel = p.family == Family::mamba2 ? value_channels + key_channels : 0;
    p.k_channel = p.family == Family::mamba2 ? value_channels : key_channels;
    p.v_channel = p.family == Family::mamba2 ? 0 : 2 * key_channels;
    p.conv_weight = c.conv_weight;
    p.conv_bias = c.conv_bias;
    p.conv_state = c.conv_state.data;
    p.conv_state_slot = c.conv_state.stride[0];
    p.gate = rows(c.gate);
    p.beta = rows(c.beta);
  }
  p.a_log = c.a_log;
  p.dt_bias = c.dt_bias;
  p.d_skip = c.d_skip;
  p.slopes = c.slopes;
  p.beta_scale = c.beta_scale;
  p.gate_lower_bound = c.gate_lower_bound;
  p.dt_min = c.dt_min;
  p.dt_max = c.dt_max;
  p.state = c.state.as<float>();
  p.state_slot = c.state.stride[0];
  p.o = call.o.data;
  p.o_row = call.o.stride[0];
  return p;
}

kernels::linear::ConvolutionParams convolution_params(const AttentionSpec& s,
                                                      const LayerCall& call) {
  const LinearCall& c = *call.linear;
  kernels::linear::ConvolutionParams p;
  p.bf16 = s.q_dtype == DType::bf16;
  p.silu = c.conv_silu;
  p.kernel = s.conv_kernel;
  p.channels = s.conv_dim;
  p.input = rows(c.conv_input);
  p.weight = c.conv_weight;
  p.bias = c.conv_bias;
  p.state = c.conv_state.data;
  p.state_slot = c.conv_state.stride[0];
  p.o = call.o.data;
  p.o_row = call.o.stride[0];
  return p;
}

}  // namespace attune::backends::shared
