// Hyper-connections (DeepSeek-V4; arXiv:2512.24880; layer model): the residual is n streams a token
// instead of one. In front of a branch they collapse into its input, and behind it
//
//   stream k = post_k * branch + sum over i of comb_{i,k} * stream i
// where pre, post and comb come from the streams themselves, and comb's rows and columns sum to 1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/loader.hpp"
#include "model/step.hpp"

namespace attune::model {

class HyperConnection {
 public:
  /// Weights are `prefix`fn, `prefix`base and `prefix`scale. `collapses_only`: the one behind the last
  /// layer, which has no branch.
  HyperConnection(Loader& loader, const std::string& prefix, bool collapses_only = false);

  struct Tensors {
    TensorView normed;   ///< [tokens, streams * hidden]
    TensorView weights;  ///< [tokens, pre | post | comb]
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;
  /// `out` [tokens, hidden]: a branch's input.
  Status collapse(Ops& ops, const TensorView& streams, const Tensors& t,
                  const TensorView& out) const;
  /// Behind collapse(), with the branch's output.
  Status expand(Ops& ops, const TensorView& branch, const Tensors& t,
                const TensorView& streams) const;

 private:
  std::int64_t streams_;
  std::int64_t hidden_;
  std::unique_ptr<Linear> projection_;
  Buffer base_;
  Buffer scale_;
  NormParams unit_;
  HyperParams params_;
};

}  // namespace attune::model
