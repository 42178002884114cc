// An encoder of the BERT family (arXiv:1810.04805): every token looks at every other of its text,
// nothing is cached (layer model). Its layers normalise the sum of branch and residual, and its
// embeddings have three parts, so it is a model of its own over the same mixers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "model/attention_groups.hpp"
#include "model/config.hpp"
#include "model/layer_part.hpp"
#include "model/loader.hpp"
#include "model/ops.hpp"
#include "model/rope_tables.hpp"
#include "model/step.hpp"

namespace attune::model {

class EncoderModel {
 public:
  /// `max_tokens`: of one forward pass, over all texts. `store` and `ops` outlive the model.
  static Result<std::unique_ptr<EncoderModel>> make(const ModelConfig& config,
                                                    std::vector<AttentionGroup> groups,
                                                    const WeightStore& store, Ops& ops,
                                                    std::int64_t max_tokens);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] std::span<const AttentionGroup> groups() const { return groups_; }

  /// `hidden`: fp32 [tokens, hidden_size] in host memory: the last layer's output, token by token.
  Status forward(const StepInput& input, std::span<float> hidden);

 private:
  struct Layer {
    std::unique_ptr<LayerPart> attention;
    Norm attention_norm;
    std::unique_ptr<LayerPart> feed_forward;
    Norm feed_forward_norm;
  };
  struct StepTensors {
    TensorView tokens;
    TensorView positions;
    TensorView types;   ///< token types: all zero, a single text each
    TensorView x;       ///< [tokens, hidden]
    TensorView branch;  ///< likewise
  };

  EncoderModel(const ModelConfig& config, std::vector<AttentionGroup> groups, Ops& ops,
               std::int64_t max_tokens);
  Status load(const WeightStore& store);
  StepTensors take(StepMemory& memory, std::int64_t num_tokens) const;

  ModelConfig config_;
  std::vector<AttentionGroup> groups_;
  Ops& ops_;
  std::int64_t max_tokens_;
  RopeTables ropes_;
  std::unique_ptr<Linear> words_;
  std::unique_ptr<Linear> positions_;
  std::unique_ptr<Linear> types_;
  Norm embedding_norm_;
  std::vector<Layer> layers_;
  Buffer memory_;
};

}  // namespace attune::model
