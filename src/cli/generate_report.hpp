// What attune generate prints besides the text: one JSON document, or statistics on stderr (layer
// cli).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/engine.hpp"
#include "runtime/session.hpp"

namespace attune::cli {

/// A request that ended.
struct Generation {
  std::string prompt;
  std::vector<std::int32_t> prompt_tokens;
  std::vector<std::int32_t> tokens;
  std::string text;
  std::string finish_reason;
  std::int64_t cached_tokens = 0;  ///< of the prompt, not computed
};

void print_json(const std::vector<Generation>& generations, runtime::Session& session);
void print_statistics(runtime::Session& session);

}  // namespace attune::cli
