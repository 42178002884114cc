// What the tensor maps of Hopper's prefill tiles are made from.
#pragma once

#include <cstdint>

#include <attune/backend.hpp>

#include "kernels/ragged_prefill/sm90/launch.hpp"

namespace attune::backends::shared::cuda {

/// A call's queries, and its keys by pages; ragged keys are one page.
inline kernels::ragged_prefill::sm90::Operands tile_operands(const LayerCall& call,
                                                             const AttentionSpec& spec,
                                                             std::int64_t num_qo_tokens,
                                                             std::int64_t num_pages,
                                                             std::int64_t tokens_per_page) {
  return {.q = call.q.data,
          .q_tokens = num_qo_tokens,
          .q_token_stride = call.q.stride[0],
          .q_head_stride = call.q.stride[1],
          .num_qo_heads = spec.num_qo_heads,
          .num_kv_heads = spec.num_kv_heads,
          .num_pages = num_pages,
          .tokens_per_page = tokens_per_page};
}

}  // namespace attune::backends::shared::cuda
