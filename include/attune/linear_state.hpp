// LinearCall: the tensors of one layer of linear attention (layer attention). LayerCall::linear
// points to it; of LayerCall itself a linear layer uses `o` and `layer` only:
//   o  [tokens, num_v_heads * head_dim_v], short_conv: [tokens, conv_dim], in the activations' dtype
//
// Every family is one recurrence over a matrix S[head_dim_v, head_dim_k] for each value head, in
// fp32, one slot for each request. Value head h reads key head h / (num_v_heads / num_k_heads). For
// each token, in order:
//
//   S <- S diag(exp g)                    decay, by key channel; most families have one g a head
//   u  = beta (v - S k)                   with the delta rule (gdn, kda)
//   u  = beta v                           without it (mamba2, lightning)
//   S <- S + u k^T
//   o  = S q
//
//   family      g, beta, q and k                                                  source
//   gdn         g = -exp(a_log) softplus(gate + dt_bias),                         arXiv:2412.06464
//               beta = beta_scale * sigmoid(beta), delta rule,
//               q <- l2norm(q) / sqrt(head_dim_k), k <- l2norm(k)
//   kda         as gdn, with a decay for each key channel; or, where              arXiv:2510.26692
//               gate_lower_bound < 0,
//               g = gate_lower_bound * sigmoid(exp(a_log) (gate + dt_bias))
//   mamba2      dt = clamp(softplus(gate + dt_bias), dt_min, dt_max),             arXiv:2405.21060
//               g = -exp(a_log) dt, beta = dt, q = C, k = B, v = x, o += d_skip x
//   lightning   g = -slope, beta = 1                                              arXiv:2401.04658
//   short_conv  no recurrence: o is the convolution's output                      Liquid AI's LFM2
//
// l2norm(x) = x / sqrt(sum x^2 + 1e-6); softplus(x) = ln(1 + e^x).
//
// gdn, kda, mamba2 and short_conv first pass q, k and v through a convolution, depthwise and causal
// over the tokens of each request, with K = conv_kernel taps:
//
//   y_t[c] = act(bias[c] + sum_r weight[c, r] x_(t - K + 1 + r)[c]),  act = silu or the identity
//
// conv_state holds a request's last K - 1 inputs, oldest first.
//
// run() reads the state rows that BatchView::state_indices names, advances them and writes o. An
// index of -1 is a padding row: nothing is read or written for it. A request that starts anew needs
// rows of zeros. A state cannot be cut back, so target_verify leaves it as it was before the drafts
// and writes the one behind them to a second slot (BatchView::draft_states).
#pragma once

#include <attune/tensor.hpp>

namespace attune {

/// Owns nothing. Pointers are device pointers on a GPU; parameters (conv_weight … slopes) are dense
/// fp32. "The activations' dtype" is AttentionSpec::q_dtype, fp32 or bf16.
struct LinearCall {
  // The convolution; unused by lightning.
  /// [tokens, conv_dim] in the activations' dtype, as columns: gdn, kda: heads of q, of k, of v;
  /// mamba2: x, B, C.
  TensorView conv_input;
  /// [conv_dim, conv_kernel]; the last tap multiplies the current input.
  const float* conv_weight = nullptr;
  const float* conv_bias = nullptr;  ///< [conv_dim] or none
  TensorView conv_state;             ///< [slots, conv_dim, conv_kernel - 1], the activations' dtype
  bool conv_silu = true;             ///< act is silu; false (short_conv): the identity

  // lightning alone, which has no convolution, in the activations' dtype.
  TensorView q;  ///< [tokens, num_k_heads * head_dim_k]
  TensorView k;  ///< likewise
  TensorView v;  ///< [tokens, num_v_heads * head_dim_v]

  // As the model's projections give them, before softplus or sigmoid, in the activations' dtype.
  TensorView gate;  ///< gdn (a), mamba2 (dt): [tokens, num_v_heads];
                    ///< kda: [tokens, num_v_heads * head_dim_k]
  TensorView beta;  ///< gdn, kda: [tokens, num_v_heads]

  const float* a_log = nullptr;    ///< gdn, kda, mamba2: [num_v_heads]
  const float* dt_bias = nullptr;  ///< gdn, mamba2: [num_v_heads]; kda: [num_v_heads, head_dim_k]
  const float* d_skip = nullptr;   ///< mamba2: [num_v_heads] or none
  const float* slopes = nullptr;   ///< lightning: [num_v_heads], positive

  float beta_scale = 1.0f;        ///< 2: eigenvalues in (-1, 1), as OLMo-Hybrid has them
  float gate_lower_bound = 0.0f;  ///< kda: below 0, the second form of g above
  float dt_min = 0.0f;            ///< mamba2
  float dt_max = 3.4e38f;         ///< mamba2

  TensorView state;  ///< fp32 [slots, num_v_heads, head_dim_v, head_dim_k], dense within a slot
};

}  // namespace attune
