// SparseCall: one layer of sparse attention (layer attention), beside LayerCall, whose q, o and
// caches are those of mla or gqa.
//
// sparse_mla (DeepSeek sparse attention, arXiv:2512.02556): a query attends to at most index_topk
// keys, all heads to the same. (In dsv4 compressed keys stand for keys:
// <attune/compressed_call.hpp>.)
//
//   score(t, s) = sum_h index_weights[t, h] * max(0, index_q[t, h] . index_key[s])
//   kept(t)     = the index_topk visible keys of largest score; all of them where they are as few
//   o(t)        = mla over kept(t) alone
//
// minimax_sparse (MiniMax-M3): every KV head has an index head and chooses blocks for its own group
// of query heads. Block b is keys b * index_block_size and on; the last visible one may be short.
//
//   score(t, g, b) = the largest of index_q[t, g] . index_key[s] over visible keys s of block b
//   kept(t, g)     = the first index_init_blocks, the last index_local_blocks and of the blocks
//                    between them those of largest score, index_topk together; all where they are
//                    as few
//   o(t)           = gqa over the visible keys of kept(t, g) alone, g the head's KV head
//
// Of equal scores the later key or block is kept; a NaN counts as the smallest score.
//
// Keys are named by their place in the request's page table, 0 … kv_len - 1, as custom masks do: a
// list means the same whatever pages the keys lie in, and whatever it holds, no byte outside the
// request's visible keys is read.
//
//   call.sparse = {.topk_indices = kept, .index_q = …, …};  run();   // scores, writes `kept`
//   call.sparse = {.topk_indices = kept};                   run();   // a layer that shares them
#pragma once

#include <attune/tensor.hpp>

namespace attune {

struct SparseCall {
  /// i32 [num_qo_tokens, index_topk]; of blocks [num_qo_tokens, num_kv_heads, index_topk]. With
  /// index_q, run writes them: ascending, -1 behind the last. Without, run reads them: in any order,
  /// entries that are no visible key or block (-1 among them) are passed over; a key listed twice
  /// counts twice, a block once.
  TensorView topk_indices{};
  TensorView index_q{};  ///< [num_qo_tokens, index_num_heads, index_head_dim], q_dtype, rotated
  /// fp32 [num_qo_tokens, index_num_heads], with all factors inside; minimax_sparse: empty.
  TensorView index_weights{};
  /// New (append_kv) or ragged (run) index keys, [tokens, index_head_dim]. Left out of append_kv
  /// where the layer has no indexer.
  TensorView index_k{};
  TensorView
      index_cache{};  ///< [pages, page_size, index_head_dim], index_dtype; pages as k_cache's
};

}  // namespace attune
