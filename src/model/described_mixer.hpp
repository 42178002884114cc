// The mixer of a layer that a plugin's record describes: its projections, its backend, its output
// (layer model).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <attune/linear_state.hpp>

#include "model/layer_part.hpp"
#include "model/linear_layer.hpp"
#include "model/loader.hpp"

namespace attune::model {

class DescribedMixer final : public LayerPart {
 public:
  DescribedMixer(Loader& loader, int layer);

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override;
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override;

 private:
  struct Input {
    TensorView LinearCall::*member;
    std::int64_t width;
    std::unique_ptr<Linear> projection;
  };
  struct Numbers {
    const float* LinearCall::*member;
    Buffer values;
  };

  LinearLayer layer_;
  LinearCall constants_;    ///< what every call says
  std::int64_t width_ = 0;  ///< of o
  std::vector<Input> inputs_;
  std::vector<Numbers> numbers_;
  std::unique_ptr<Linear> output_;
};

}  // namespace attune::model
