// cpu with another rule for shared prefixes than its cost test: tests take every level they can.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/status.hpp>

#include "plan/cascade.hpp"

namespace attune::backends::cpu {

Result<std::unique_ptr<Backend>> make_with_cascade(const BackendContext& context,
                                                   plan::CascadeMode cascade);

}  // namespace attune::backends::cpu
