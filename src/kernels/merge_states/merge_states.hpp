// Joining the parts of split rows by their lse (layer kernels). The parts are few and small: plain
// C++ at the baseline instruction set is bound by memory already.
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"

namespace attune::kernels::merge_states {

/// Rows of one block, ordered as in dense::Item; part s of row r lies at partial row
/// first_partial_row + s * rows + r.
struct Item {
  std::int64_t first_token = 0;
  std::int64_t num_tokens = 0;
  int first_head = 0;
  int num_heads = 0;
  std::int64_t first_partial_row = 0;
  std::int64_t num_parts = 0;
};

/// Writes o and lse, sink and v_scale included. `sums`: head_dim_vo floats of the calling thread.
void run(const dense::Params& p, const Item& item, float* sums);

}  // namespace attune::kernels::merge_states
