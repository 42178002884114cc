// Experts on a shortcut (LongCat-Flash, arXiv:2509.01322): they read one sublayer's input and are
// added after the next one's feed-forward, so that a parallel engine can run them beside what lies
// between (layer model).
#pragma once

#include <memory>
#include <utility>

#include "model/layer_part.hpp"

namespace attune::model {

/// The dense feed-forward of the first sublayer; the experts' output goes to Step::shortcut.
class ShortcutBegin final : public LayerPart {
 public:
  ShortcutBegin(std::unique_ptr<LayerPart> dense, std::unique_ptr<LayerPart> experts)
      : dense_(std::move(dense)), experts_(std::move(experts)) {}

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override {
    dense_->lay_out(memory, num_tokens);
    experts_->lay_out(memory, num_tokens);
  }
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override {
    if (Status s = experts_->forward(step, x, step.shortcut); !s.ok()) return s;
    return dense_->forward(step, x, out);
  }

 private:
  std::unique_ptr<LayerPart> dense_;
  std::unique_ptr<LayerPart> experts_;
};

/// The dense feed-forward of the second sublayer, where the experts join.
class ShortcutEnd final : public LayerPart {
 public:
  explicit ShortcutEnd(std::unique_ptr<LayerPart> dense) : dense_(std::move(dense)) {}

  void lay_out(StepMemory& memory, std::int64_t num_tokens) const override {
    dense_->lay_out(memory, num_tokens);
  }
  Status forward(Step& step, const TensorView& x, const TensorView& out) const override {
    if (Status s = dense_->forward(step, x, out); !s.ok()) return s;
    step.ops.add(step.shortcut, 1.0f, out);
    return {};
  }

 private:
  std::unique_ptr<LayerPart> dense_;
};

}  // namespace attune::model
