// attune verify --golden: checkpoints with known logits, on every backend that can run them (layer
// cli).
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"

namespace attune::cli {

/// Each folder holds a checkpoint with its golden.safetensors, or such folders.
int verify_golden(const CommonOptions& options, const std::vector<std::string>& folders);

}  // namespace attune::cli
