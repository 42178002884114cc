// A config's activation as the row kernels of every device name it (layer model).
#pragma once

#include "kernels/ops/rows.hpp"
#include "model/config.hpp"

namespace attune::model {

[[nodiscard]] kernels::ops::RowActivation row_activation(Activation kind);

}  // namespace attune::model
