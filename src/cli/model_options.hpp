// From the options of the contract to an opened model (layer cli).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <attune/registry.hpp>
#include <attune/status.hpp>

#include "cli/command.hpp"
#include "model/checkpoint.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/embedder.hpp"
#include "runtime/session.hpp"
#include "text/tokenizer.hpp"

namespace attune::cli {

/// The words of --weights.
Result<model::CpuWeights> parse_weights(const std::string& word);

/// How to run a model, beyond what every command shares.
struct ModelRun {
  std::string weights = "auto";  ///< auto, as_stored, bf16, fp32
  std::string weights_cache{};   ///< a file of converted weights; empty = none
  bool batch_invariant = false;
  bool prefix_cache = true;  ///< which a choice of backends may depend on
  runtime::EngineOptions engine{};
  std::vector<std::int32_t> calibration{};  ///< for integer KV caches: a text's tokens
};

/// Tokens of the calibration text, where it is needed and there is a tokenizer.
[[nodiscard]] std::vector<std::int32_t> calibration_tokens(const CommonOptions& options,
                                                           const text::Tokenizer* tokenizer);

/// Opens `checkpoint` on the device of --device with the backends of the options.
Result<std::unique_ptr<runtime::Session>> open_session(const CommonOptions& options,
                                                       const ModelRun& run,
                                                       model::Checkpoint checkpoint);

/// Likewise an encoder.
Result<std::unique_ptr<runtime::Embedder>> open_embedder(const CommonOptions& options,
                                                         const std::string& weights,
                                                         const model::PoolingConfig& pooling,
                                                         model::Checkpoint checkpoint);

/// On stderr: which backend serves which layers and phase, and why.
void print_selection(const Selection& selection);

}  // namespace attune::cli
