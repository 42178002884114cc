// A model that can run: weights in the device's form, layers, and one forward pass (layer model).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "model/attention_groups.hpp"
#include "model/config.hpp"
#include "model/decoder_layer.hpp"
#include "model/ops.hpp"
#include "model/per_layer_inputs.hpp"
#include "model/residual_scaling.hpp"
#include "model/rope_tables.hpp"
#include "model/step.hpp"
#include "model/weights/weight_store.hpp"

namespace attune::model {

struct ModelOptions {
  std::int64_t max_tokens = 512;     ///< rows of one step
  std::int64_t max_logit_rows = 16;  ///< of those, rows whose logits are wanted
  std::int64_t context_limit = 0;    ///< the longest sequence; 0 = the model's context length
  /// Cached latents that a layer expands at once; 0 = no step has expanded parts.
  std::int64_t latent_chunk = 0;
};

class Model {
 public:
  /// `groups`: of attention_groups(), perhaps cut finer; a step names one backend for each.
  /// `store` and `ops` must outlive the model. A weight that is absent or has another shape than
  /// the config says is an error that names it.
  static Result<std::unique_ptr<Model>> make(const ModelConfig& config,
                                             std::vector<AttentionGroup> groups,
                                             const WeightStore& store, Ops& ops,
                                             const ModelOptions& options);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] std::span<const AttentionGroup> groups() const { return groups_; }

  /// One step. `logits`: fp32 [logit_rows, vocab_size] in host memory.
  Status forward(const StepInput& input, std::span<float> logits);

  /// Its three thirds. compute() issues verbs and launches only, on addresses that depend on
  /// nothing but the counts of tokens and logit rows: it may be recorded (Ops::record). The logits
  /// of leading rows may be all that is wanted.
  void upload(const StepInput& input);
  Status compute(const StepInput& input);
  Status download(const StepInput& input, std::span<float> logits);
  /// What the leading of input.choices took; kNoToken where no logit is a number.
  Status download_tokens(const StepInput& input, std::span<std::int32_t> tokens);

 private:
  Model(const ModelConfig& config, std::vector<AttentionGroup> groups, Ops& ops,
        const ModelOptions& options);

  Status load(const WeightStore& store);
  struct StepTensors {
    TensorView tokens;
    TensorView positions;
    TensorView logit_rows;
    TensorView x;         ///< [tokens, hidden], or of hyper-connections [tokens, streams * hidden]
    TensorView embedded;  ///< [tokens, hidden], where there are streams
    TensorView shortcut;  ///< likewise, where experts skip a layer
    TensorView router_states;        ///< [tokens, router_hidden_size], where routers have states
    TensorView topk_indices;         ///< i32 [tokens, topk], where layers are sparse
    TensorView window_tokens;        ///< bytes of WindowToken [tokens], where keys are compressed
    TensorView last;                 ///< [logit rows, hidden]
    TensorView last_streams;         ///< likewise of all streams
    HyperConnection::Tensors hyper;  ///< of those rows
    TensorView logits;               ///< [logit rows, vocab]
    TensorView choices;              ///< bytes of Choice [logit rows]
    TensorView chosen;               ///< i32 [logit rows]
  };
  /// A step's tensors, and the tables of its positions.
  StepTensors take(StepMemory& memory, std::int64_t num_tokens, std::int64_t num_logit_rows);
  StepTensors take(StepMemory& memory, const StepInput& input);
  Status count_memory();

  ModelConfig config_;
  Ops& ops_;
  ModelOptions options_;
  std::vector<AttentionGroup> groups_;
  RopeTables ropes_;
  std::vector<std::vector<std::byte>> weight_copies_;
  std::unique_ptr<Linear> embedding_;
  std::unique_ptr<Linear> head_;  ///< nullptr where it is the embedding
  Norm final_norm_;
  std::optional<HyperConnection> final_collapse_;
  std::optional<PerLayerInputs> per_layer_inputs_;
  std::optional<ColumnScaling> input_scaling_;
  std::vector<DecoderLayer> layers_;
  std::vector<WindowToken> window_tokens_;  ///< of the step that is uploaded
  Buffer memory_;
};

}  // namespace attune::model
