// Learned vectors on both sides of a residual addition (ZAYA1; layer model):
//   x <- (x + residual_bias) residual_scale + (branch + hidden_states_bias) hidden_states_scale
#pragma once

#include <string>

#include "model/loader.hpp"
#include "model/step_memory.hpp"

namespace attune::model {

/// x <- (x + bias) * scale, column by column.
struct ColumnScaling {
  Buffer scale;
  Buffer bias;

  ColumnScaling(Loader& loader, const std::string& prefix, std::int64_t width)
      : scale(loader.vector(prefix + "_scale", width)),
        bias(loader.vector(prefix + "_bias", width)) {}
  void apply(Ops& ops, const TensorView& x) const {
    ops.add(row_of(bias, x), 1.0f, x);
    ops.multiply(x, row_of(scale, x), x);
  }
};

struct ResidualScaling {
  ColumnScaling residual;
  ColumnScaling branch;

  ResidualScaling(Loader& loader, const std::string& prefix, std::int64_t width)
      : residual(loader, prefix + "residual", width),
        branch(loader, prefix + "hidden_states", width) {}
};

}  // namespace attune::model
