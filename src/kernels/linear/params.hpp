// What the linear-attention kernels receive (layer kernels): pointers with their shapes, and the
// family's constants. Heads: v-head h reads k-head h / (num_v_heads / num_k_heads). State: [slots,
// num_v_heads, dv, dk] fp32.
#pragma once

#include <cstdint>

namespace attune::kernels::linear {

enum class Family : std::uint8_t { gdn, kda, mamba2, lightning };

/// A tensor of activations: fp32 or bf16, rows `row` elements apart, innermost dense.
struct Activations {
  const void* data = nullptr;
  std::int64_t row = 0;
};

struct Params {
  Family family = Family::gdn;
  bool bf16 = false;  ///< of every Activations member, conv_state and o; otherwise fp32
  /// A token's bits must not depend on the tokens behind it in its chunk, as factors do that bound
  /// kda's decays over many tokens.
  bool batch_invariant = false;

  int num_k_heads = 0;
  int num_v_heads = 0;
  int dk = 0;
  int dv = 0;
  int conv_kernel = 0;  ///< 0 = no convolution
  bool conv_silu = true;

  // With a convolution q, k and v are channels of conv_input at these offsets; without one they are
  // tensors of their own.
  Activations conv_input{};  ///< [tokens, conv_dim]
  int q_channel = 0;
  int k_channel = 0;
  int v_channel = 0;
  Activations q{};  ///< [tokens, num_k_heads, dk]
  Activations k{};
  Activations v{};  ///< [tokens, num_v_heads, dv]

  Activations gate{};  ///< [tokens, num_v_heads] or [tokens, num_v_heads, dk] (kda)
  Activations beta{};  ///< [tokens, num_v_heads]

  const float* conv_weight = nullptr;  ///< [conv_dim, conv_kernel]
  const float* conv_bias = nullptr;    ///< [conv_dim] or none
  const void* conv_state = nullptr;    ///< [slots, conv_dim, conv_kernel - 1]
  std::int64_t conv_state_slot = 0;    ///< elements between slots

  const float* a_log = nullptr;
  const float* dt_bias = nullptr;
  const float* d_skip = nullptr;
  const float* slopes = nullptr;
  float beta_scale = 1.0f;
  float gate_lower_bound = 0.0f;
  float dt_min = 0.0f;
  float dt_max = 3.4e38f;

  float* state = nullptr;       ///< [slots, num_v_heads, dv, dk]
  std::int64_t state_slot = 0;  ///< elements between slots
  void* o = nullptr;            ///< [tokens, num_v_heads, dv]
  std::int64_t o_row = 0;
};

/// One request's rows for some of its v-heads: heads of one item share the k-head's preparation.
struct Item {
  std::int64_t first_token = 0;
  std::int64_t num_tokens = 0;
  std::int32_t slot = -1;
  std::int32_t first_head = 0;
  std::int32_t num_heads = 0;
};

}  // namespace attune::kernels::linear
