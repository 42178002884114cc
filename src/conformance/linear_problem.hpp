// A problem of linear attention: the values of a case in logical order, states included, and their
// right answer (layer conformance).
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/problem.hpp"

namespace attune::conformance {

struct LinearProblem {
  AttentionSpec spec{};
  std::vector<RequestShape> requests{};
  std::vector<std::int64_t> first_token{};  ///< of each request

  // Rows of tokens, in the activations' dtype.
  std::vector<char> input{};  ///< conv_input; lightning: q | k | v of a token side by side
  std::vector<char> gate{};
  std::vector<char> beta{};

  std::vector<float> conv_weight{}, conv_bias{}, a_log{}, dt_bias{}, d_skip{}, slopes{};
  float beta_scale = 1.0f;
  float gate_lower_bound = 0.0f;
  float dt_min = 0.0f;
  float dt_max = 3.4e38f;

  // Before the first token; a row a request.
  std::vector<char> conv_state{};  ///< the activations' dtype
  std::vector<float> state{};

  [[nodiscard]] std::int64_t num_tokens() const { return first_token.back(); }
  [[nodiscard]] std::int64_t input_width() const;
  [[nodiscard]] std::int64_t gate_width() const;        ///< 0: there is none
  [[nodiscard]] std::int64_t beta_width() const;        ///< 0: there is none
  [[nodiscard]] std::int64_t output_width() const;      ///< of a row of o
  [[nodiscard]] std::int64_t state_width() const;       ///< of a slot; 0: there is none
  [[nodiscard]] std::int64_t conv_state_width() const;  ///< of a slot; 0: there is none
};

/// The same case with another `layer` has other values of the same shape.
[[nodiscard]] LinearProblem make_linear_problem(const Case& one, std::uint64_t layer = 0);

/// Exact images of what was stored, as doubles. NaN for padding, which has neither rows nor states.
struct LinearAnswer {
  std::vector<double> o{};           ///< [tokens, output_width]
  std::vector<double> state{};       ///< [requests, state_width], after the last token
  std::vector<double> conv_state{};  ///< [requests, conv_state_width]
};

/// What the subject's oracle says, in fp32 activations: one token after the other, no plan of the
/// subject's involved.
[[nodiscard]] Result<LinearAnswer> solve(const LinearProblem& problem, const Subject& subject);

[[nodiscard]] Outcome compare(const LinearProblem& problem, const LinearAnswer& have,
                              const LinearAnswer& want);
[[nodiscard]] Outcome compare_bits(const LinearAnswer& have, const LinearAnswer& want);

/// Tensors of a linear layer as a call wants them, without data: rows `gap` elements apart.
struct LinearShapes {
  TensorView input, gate, beta, o;
};
[[nodiscard]] LinearShapes linear_shapes(const LinearProblem& problem, DType dtype,
                                         std::int64_t tokens, std::int64_t gap);

/// Points a call at tensors shaped as above.
struct LinearTensors {
  LinearShapes rows{};
  TensorView conv_state{}, state{};
  const float* conv_weight = nullptr;
  const float* conv_bias = nullptr;
  const float* a_log = nullptr;
  const float* dt_bias = nullptr;
  const float* d_skip = nullptr;
  const float* slopes = nullptr;
};
void fill_call(const LinearProblem& problem, const LinearTensors& tensors, LinearCall& call);

}  // namespace attune::conformance
