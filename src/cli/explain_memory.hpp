// The part of `attune explain` that counts bytes (layer cli).
#pragma once

#include <cstdint>
#include <string>

#include <attune/registry.hpp>

#include "model/config.hpp"

namespace attune::cli {

/// `limit` in bytes; 0 = none. Weights are not counted: what is said is what the cache may take.
std::string memory_text(const model::ModelConfig& config, const Selection& selection,
                        std::int64_t limit);
std::string memory_json(const model::ModelConfig& config, const Selection& selection,
                        std::int64_t limit);

}  // namespace attune::cli
