// attune verify --cases: the conformance suite over every usable backend (layer cli).
#pragma once

#include <string>

#include <attune/descriptor.hpp>

#include "cli/command.hpp"

namespace attune::cli {

struct VerifyCasesOptions {
  std::string cases = "smoke";  ///< or full
  std::string match = "*";
  FeatureSet declared{};  ///< only rows that declare all of these
};

int verify_cases(const CommonOptions& options, const VerifyCasesOptions& which);

}  // namespace attune::cli
