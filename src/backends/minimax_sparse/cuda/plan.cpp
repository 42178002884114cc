#include "backends/minimax_sparse/cuda/plan.hpp"

#include <algorithm>

namespace attune::backends::minimax_sparse {

BatchBounds list_bounds(const BatchBounds& bounds) {
  return {.max_batch = bounds.max_qo_tokens,
          .max_qo_tokens = bounds.max_qo_tokens,
          .max_kv_len = bounds.max_kv_len,
          .decode_only = true};
}

BatchView list_batch(const AttentionSpec& spec, const BatchView& batch, BlockPlan& plan) {
  const std::int32_t most = spec.index_topk * spec.index_block_size;
  plan.token_indptr.assign(1, 0);
  plan.key_indptr.assign(1, 0);
  const auto add = [&](std::int32_t tokens, std::int32_t keys) {
    plan.token_indptr.push_back(plan.token_indptr.back() + tokens);
    plan.key_indptr.push_back(plan.key_indptr.back() + keys);
  };
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const auto tokens = static_cast<std::int32_t>(batch.qo_len(i));
    if (plan.tiles.used && tokens > 1) {
      add(tokens, 0);
      continue;
    }
    // What is kept at most: a list may have fewer keys, and says so on the device.
    for (std::int32_t row = 0; row < tokens; ++row)
      add(1, std::min(plan.selection.visible[static_cast<std::size_t>(plan.token_indptr.back())],
                      most));
  }
  return {.form = BatchForm::decode,
          .source = KvSource::ragged,
          .qo_indptr = plan.token_indptr,
          .kv_indptr = plan.key_indptr};
}

}  // namespace attune::backends::minimax_sparse
