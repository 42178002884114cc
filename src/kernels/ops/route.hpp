// Which experts a token goes to, and with what weight (layer kernels). Scalar: a few hundred
// numbers a token.
#pragma once

#include <cstdint>

namespace attune::kernels::ops {

enum class ExpertScore : std::uint8_t { softmax, sigmoid, sqrt_softplus };

/// One token. Scores choose with `bias` added and weigh without it. With groups, the experts
/// outside the best `topk_groups` groups are not eligible: a group is as good as its best expert
/// (softmax, DeepSeek-V2) or the sum of its best two (otherwise, DeepSeek-V3).
struct RouteParams {
  const float* logits = nullptr;  ///< [num_experts]
  const float* bias = nullptr;    ///< [num_experts] or nullptr
  int num_experts = 0;
  int topk = 0;
  ExpertScore score = ExpertScore::softmax;
  bool softmax_after_topk = false;  ///< choose by logit, then softmax over the chosen ones
  bool normalize = false;           ///< weights divided by their sum
  float scale = 1.0f;
  int num_groups = 1;
  int topk_groups = 1;
  float* workspace = nullptr;   ///< [2 * num_experts]
  std::int32_t* ids = nullptr;  ///< [topk], best first; ties go to the lower id
  float* weights = nullptr;     ///< [topk]
};

void route(const RouteParams& params);

}  // namespace attune::kernels::ops
