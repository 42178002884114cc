// A model on disk: its configuration and its weights, whatever the format (layer model).
#pragma once

#include <memory>
#include <string>

#include <attune/status.hpp>

#include "model/config.hpp"
#include "model/weights/gguf.hpp"
#include "model/weights/weight_store.hpp"

namespace attune::model {

struct Checkpoint {
  ModelConfig config;
  std::unique_ptr<WeightStore> weights;
  /// The head of a GGUF file, which also holds the vocabulary; owned by `weights`. nullptr for a
  /// folder, whose vocabulary is in tokenizer.json beside the weights.
  const GgufFile* gguf = nullptr;
  std::string folder;  ///< where the files lie
};

/// `path`: a .gguf file, or a folder with config.json and model.safetensors or its sharded form.
[[nodiscard]] Result<Checkpoint> open_checkpoint(const std::string& path);

/// A .gguf or .safetensors file, a shard index, or a folder with either of the latter.
[[nodiscard]] Result<std::unique_ptr<WeightStore>> open_weights(const std::string& path);

}  // namespace attune::model
