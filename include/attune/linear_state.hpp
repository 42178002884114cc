// LinearCall: one layer of linear attention (layer attention). Beside LayerCall, which holds q-free
// members only: o, layer.
//
// Every family is one recurrence over a state S[head_dim_v, head_dim_k] a head, fp32, one slot a
// request:
//   S <- diag(exp g) S;  u = beta (v - S k) with the delta rule, beta v without;  S <- S + u (x) k;
//   o = S q gdn        g = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b) [x2: negative
//   eigenvalues], delta rule,
//              q <- l2norm(q) / sqrt(dk), k <- l2norm(k) (arXiv:2412.06464)
//   kda        as gdn with a decay for each key channel (arXiv:2510.26692) mamba2     g =
//   -exp(A_log) dt, beta = dt = clamp(softplus(dt_raw + dt_bias)), q = C, k = B, v = x,
//              o += D x (arXiv:2405.21060)
//   lightning  g = -slope, beta = 1 (arXiv:2401.04658) short_conv no recurrence: o is the
//   convolution's output
// The convolution (gdn, kda, mamba2, short_conv), depthwise and causal over each request's tokens:
//   y_t[c] = act(bias[c] + sum_r weight[c, r] x_{t-K+1+r}[c]);  conv_state holds the last K-1
//   inputs, oldest first.
// `run` reads the state rows named by BatchView::state_indices, advances them, and writes o. A row
// of -1 is padding: it reads and writes nothing. A request that starts anew needs zeroed rows
// (cache/state_pool does that on reuse). A state cannot be cut back, so that target_verify leaves
// it before the drafts and writes the one behind them to a second slot (BatchView::draft_states).
#pragma once

#include <attune/tensor.hpp>

namespace attune {

struct LinearCall {
  /// [tokens, conv_dim] in the activations' dtype. gdn, kda: q heads | k heads | v heads; mamba2: x
  /// | B | C.
  TensorView conv_input;
  const float* conv_weight =
      nullptr;  ///< [conv_dim, conv_kernel]; the last tap multiplies the current input
  const float* conv_bias = nullptr;  ///< [conv_dim] or none
  TensorView conv_state;             ///< [slots, conv_dim, conv_kernel - 1], the activations' dtype
  bool conv_silu = true;             ///< false: short_conv

  // lightning, which has no convolution: [tokens, heads, dim] in the activations' dtype.
  TensorView q;
  TensorView k;
  TensorView v;

  /// Raw gate in the activations' dtype: gdn a, mamba2 dt: [tokens, num_v_heads]; kda: [tokens,
  /// num_v_heads, head_dim_k].
  TensorView gate;
  TensorView beta;  ///< raw b, gdn and kda: [tokens, num_v_heads]

  const float* a_log = nullptr;    ///< [num_v_heads]
  const float* dt_bias = nullptr;  ///< gdn, mamba2: [num_v_heads]; kda: [num_v_heads, head_dim_k]
  const float* d_skip = nullptr;   ///< mamba2: [num_v_heads] or none
  const float* slopes = nullptr;   ///< lightning: [num_v_heads], positive

  float beta_scale = 1.0f;  ///< 2: eigenvalues in (-1, 1) (OLMo-Hybrid)
  float gate_lower_bound =
      0.0f;             ///< kda: g = bound * sigmoid(exp(A_log) (gate + dt_bias)) where below 0
  float dt_min = 0.0f;  ///< mamba2
  float dt_max = 3.4e38f;

  TensorView state;  ///< fp32 [slots, num_v_heads, head_dim_v, head_dim_k]
};

}  // namespace attune
