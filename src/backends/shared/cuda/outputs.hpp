// Where a launch writes: o and, where a call wants it, lse.
#pragma once

#include <attune/backend.hpp>

namespace attune::backends::shared::cuda {

/// Into any kernel's parameters; their own names are alike.
template <class Params>
void set_outputs(const LayerCall& call, Params& p) {
  p.o = call.o.data;
  p.o_token_stride = call.o.stride[0];
  p.o_head_stride = call.o.stride[1];
  if (!call.lse.defined()) return;
  p.lse = call.lse.template as<float>();
  p.lse_token_stride = call.lse.stride[0];
  p.lse_head_stride = call.lse.stride[1];
}

}  // namespace attune::backends::shared::cuda
