// A model as files: its config and its weights, whatever the layout on disk (layer model).
#pragma once

#include <memory>
#include <string>

#include <attune/status.hpp>

#include "model/config.hpp"
#include "model/weights/gguf.hpp"
#include "model/weights/weight_store.hpp"

namespace attune::model {

struct Checkpoint {
  std::string path;
  ModelConfig config;
  std::unique_ptr<WeightStore> weights;
  const GgufFile* gguf = nullptr;  ///< the file's head where it is a GGUF; lives in `weights`
};

/// `path`: a folder in Hugging Face layout (config.json beside one safetensors file, or beside the
/// index of several), or a .gguf file. `families`: of a folder (linear_families.hpp).
Result<Checkpoint> open_checkpoint(const std::string& path,
                                   const LinearFamilies* families = nullptr);

}  // namespace attune::model
