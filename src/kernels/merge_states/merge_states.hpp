// Joining the states of rows by their lse (layer kernels): parts of split keys, levels of shared
// prefixes. They are few and small: plain C++ at the baseline instruction set is bound by memory
// already.
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"

namespace attune::kernels::merge_states {

/// States over disjoint keys for every row of an item. Part s of token t and head h, counted from
/// the item's first, lies at partial row first_row + s * part_stride + t * token_stride + h.
struct Source {
  std::int64_t first_row = 0;
  std::int64_t token_stride = 0;
  std::int64_t part_stride = 0;
  std::int64_t num_parts = 0;
};

/// Rows of one block, ordered as in dense::Item.
struct Item {
  std::int64_t first_token = 0;
  std::int64_t num_tokens = 0;
  int first_head = 0;
  int num_heads = 0;
  std::int64_t first_source = 0;  ///< of `sources`
  std::int64_t num_sources = 0;
};

/// Writes o and lse, sink and v_scale included. `sums`: head_dim_vo floats of the calling thread.
void run(const dense::Params& p, const Item& item, const Source* sources, float* sums);

}  // namespace attune::kernels::merge_states
