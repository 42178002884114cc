// GGUF metadata → ModelConfig (layer model).
#pragma once

#include <string>

#include <attune/status.hpp>

#include "model/config.hpp"
#include "model/weights/gguf.hpp"

namespace attune::model {

/// The converter that wrote the file has already folded some of the model into the weights, and the
/// config says so: Gemma's norm weights carry their "+ 1" (NormKind::rms), q and k of llama-like
/// architectures are permuted (RopeConfig::interleaved), Llama 3.1's frequency scaling is a tensor
/// of factors (RopeType::longrope). `path` is for error texts.
[[nodiscard]] Result<ModelConfig> config_from_gguf(const GgufFile& file, const std::string& path);

}  // namespace attune::model
