// docs/models.md: the families that golden models prove, what each asks of attention, and who
// serves it on a CPU (layer cli).
#pragma once

#include <string>

#include <attune/registry.hpp>
#include <attune/status.hpp>

namespace attune::cli {

/// One row a family and kind of layer, for the folders of `models` that hold a config.json. The
/// device is an imagined one, so that the page is the same on every machine.
Result<std::string> models_markdown(const std::string& models, const Registry& registry);

}  // namespace attune::cli
