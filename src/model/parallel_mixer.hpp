// Two mixers side by side on one input (Falcon-H1: attention and Mamba-2), each output with a
// factor (layer model).
#pragma once

#include <memory>
#include <utility>

#include "model/layer_part.hpp"
#include "model/loader.hpp"

namespace attune::model {

class ParallelMixer final : public LayerPart {
 public:
  ParallelMixer(const ModelConfig& config, std::unique_ptr<LayerPart> attention,
                std::unique_ptr<LayerPart> linear)
      : hidden_(config.hidden_size),
        attention_in_(static_cast<float>(config.attention_in_multiplier)),
        attention_out_(static_cast<float>(config.attention_out_multiplier)),
        linear_out_(static_cast<float>(config.ssm_out_multiplier)),
        attention_(std::move(attention)),
        linear_(std::move(linear)) {}

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override {
    const auto frame = memory.frame();
    (void)memory.take(DType::f32, {num_tokens, hidden_});
    (void)memory.take(DType::f32, {num_tokens, hidden_});
    attention_->lay_out(memory, num_tokens);
    linear_->lay_out(memory, num_tokens);
  }

  Status forward(Step& step, const TensorView& x, const TensorView& out) const override {
    const auto frame = step.memory.frame();
    const TensorView input = step.memory.take(DType::f32, {step.num_tokens, hidden_});
    const TensorView other = step.memory.take(DType::f32, {step.num_tokens, hidden_});
    step.ops.scale(x, attention_in_, input);
    if (Status s = attention_->forward(step, input, out); !s.ok()) return s;
    if (Status s = linear_->forward(step, x, other); !s.ok()) return s;
    step.ops.scale(out, attention_out_, out);
    step.ops.add(other, linear_out_, out);
    return {};
  }

 private:
  std::int64_t hidden_;
  float attention_in_;
  float attention_out_;
  float linear_out_;
  std::unique_ptr<LayerPart> attention_;
  std::unique_ptr<LayerPart> linear_;
};

}  // namespace attune::model
