// Families of linear layers that plugins describe (<attune/linear_family.hpp>), made into records
// of ours (layer model).
#pragma once

#include <memory>
#include <span>
#include <string>

#include <attune/linear_family.hpp>
#include <attune/status.hpp>

#include "model/linear_families.hpp"

namespace attune::model {

/// Refuses a record that lacks something, and a name that is taken.
Status add_described(const LinearFamilyRecord& record, LinearFamilies& families);

/// Of all plugins, which are opened if nobody has.
Result<std::unique_ptr<LinearFamilies>> families_of_plugins(std::span<const std::string> paths);

}  // namespace attune::model
