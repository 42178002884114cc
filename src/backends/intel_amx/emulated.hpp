// The same backend on tiles emulated in plain C++: its packing and indexing can be tested on any
// CPU.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/status.hpp>

namespace attune::backends::intel_amx {

Result<std::unique_ptr<Backend>> make_emulated(const BackendContext& context);

}  // namespace attune::backends::intel_amx
