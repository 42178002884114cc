// CompressedCall: one layer of compressed attention (DeepSeek-V4; layer attention), beside LayerCall,
// whose q, o, sinks and window of latents are those of mla with equal head dims. A compressed key
// stands for compress_ratio consecutive tokens:
//
//   seen(t)  = compressed keys 0 … (t + 1) / compress_ratio - 1: those whose tokens are all there
//   kept(t)  = the index_topk best of seen(t), or all of them where the spec has no indexer
//   o(t)     = mla over the window of t and kept(t) together: one softmax, one sink
//
// lse(t) is that of both together. Compressed key w lies in page w / n of the request's table in
// BatchView::compressed, at place w % n, where a page has n = page_size / compress_ratio of them: it
// is found at the slot of its last token, divided by compress_ratio.
//
// With an indexer LayerCall::sparse brings its tensors or lists, which count compressed keys where
// those of sparse_mla count keys: index_cache is [pages, n, index_head_dim].
#pragma once

#include <cstdint>
#include <span>

#include <attune/tensor.hpp>

namespace attune {

struct CompressedCall {
  TensorView cache{};  ///< [pages, page_size / compress_ratio, head_dim_qk], kv_dtype
  /// append_kv: [tokens, head_dim_qk], a row for each token of LayerCall::k; rows (and those of
  /// index_k) whose token is not the last of compress_ratio are not read. run, where the batch is
  /// ragged: all compressed keys.
  TensorView k{};
  /// append_kv: where each token would lie in the pages of compressed keys, page * page_size + place;
  /// negative = nowhere.
  std::span<const std::int64_t> slot_mapping{};
};

}  // namespace attune
