// Hugging Face config.json → ModelConfig, in every dialect of the field (layer model).
#pragma once

#include <string>
#include <string_view>

#include <attune/status.hpp>

#include "model/config.hpp"

namespace attune::model {

/// `text` is the whole file; bare Infinity and NaN, which Python's writers leave behind, are read.
/// An unknown architecture, a missing field or a contradiction is an invalid_argument that names
/// it. `families` from outside are asked first, and outlive the config.
[[nodiscard]] Result<ModelConfig> parse_config(std::string_view text,
                                               const LinearFamilies* families = nullptr);

/// The same from `path`: a config.json, or a folder that holds one.
[[nodiscard]] Result<ModelConfig> load_config(const std::string& path,
                                              const LinearFamilies* families = nullptr);

}  // namespace attune::model
