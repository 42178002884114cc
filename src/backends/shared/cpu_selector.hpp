// What the selectors of keys and of blocks do alike: an indexer's query and keys, as its score kernel
// reads them.
#pragma once

#include <cstdint>

#include "backends/shared/cpu_selection.hpp"

namespace attune::backends::shared {

/// Keys that a thread scores at a time where there are fewer tokens than threads.
inline constexpr std::int64_t kScoreChunk = 1024;

/// A token's query and its request's keys: what the Params of all score kernels begin with.
template <class Params>
[[nodiscard]] Params index_params(const AttentionSpec& spec, const SelectionPlan& plan,
                                  const SparseCall& call, std::int64_t token) {
  const TensorView& keys = plan.ragged ? call.index_k : call.index_cache;
  Params p;
  p.q = call.index_q.as<const char>() +
        token * call.index_q.stride[0] * static_cast<std::int64_t>(size_of(spec.q_dtype));
  p.q_dtype = spec.q_dtype;
  p.q_head_stride = call.index_q.stride[1];
  p.num_heads = spec.index_num_heads;
  p.head_dim = spec.index_head_dim;
  p.keys = keys.data;
  p.page_stride = keys.stride[0];
  if (plan.ragged) {
    p.keys = keys.as<const char>() + plan.first_entry(token) * keys.stride[0] *
                                         static_cast<std::int64_t>(size_of(spec.index_dtype));
  } else {
    p.token_stride = keys.stride[1];
    p.page_size = static_cast<std::int32_t>(plan.page_size);
    p.pages = plan.kv_indices.data() + plan.first_entry(token);
  }
  return p;
}

}  // namespace attune::backends::shared
