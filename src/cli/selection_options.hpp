// From the options of the contract to what the registry is asked (layer cli).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <attune/registry.hpp>
#include <attune/status.hpp>

#include "cli/command.hpp"

namespace attune::cli {

/// What selection is asked, from --attention-backend and its relatives, --page-size,
/// --kv-cache-dtype and --fallback. The first word that makes no sense is named.
Result<SelectionOptions> selection_options(const CommonOptions& options);

Result<Registry> open_registry(const CommonOptions& options);

/// "0-3,7"
std::string layer_ranges(const std::vector<int>& layers);

/// "8GiB", "24G", "512MB", "1000000" → bytes; G and GiB are 2^30, GB is 10^9.
Result<std::int64_t> parse_bytes(const std::string& text);

/// "1.5 GiB"
std::string bytes_text(double bytes);

}  // namespace attune::cli
