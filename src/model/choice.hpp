// How a row of logits gives a token, for the layers above (layer model).
#pragma once

#include "kernels/ops/choose.hpp"

namespace attune::model {

using kernels::ops::Choice;
using kernels::ops::Chooser;
using kernels::ops::kNoToken;

}  // namespace attune::model
