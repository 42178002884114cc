// What makes a mask by blocks fit its batch (layer attention).
#pragma once

#include <string_view>

#include <attune/batch.hpp>
#include <attune/spec.hpp>
#include <attune/status.hpp>

namespace attune::attention {

/// The batch's lengths have been checked.
[[nodiscard]] Status validate_blocks(const BatchView& batch, const AttentionSpec& spec);

}  // namespace attune::attention
