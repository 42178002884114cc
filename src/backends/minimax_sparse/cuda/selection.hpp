// The block indexer on a GPU: blocks are scored, each KV head of a token keeps the best, and pages
// say where those lie. Tokens are scored some at a time; a plan says which, each layer's run finds
// blocks.
#pragma once

#include <cstdint>
#include <vector>

#include <attune/backend.hpp>
#include <attune/sparse_call.hpp>

#include "backends/shared/cuda/score_list.hpp"
#include "kernels/block_scores/sm80/launch.hpp"
#include "plan/workspace.hpp"
#include "plan/workspace_image.hpp"

namespace attune::backends::minimax_sparse {

/// What is settled once a backend.
struct Indexer {
  AttentionSpec spec;
  std::int32_t page_size = 1;
  std::int32_t part_keys = 1;
  int num_sms = 1;

  [[nodiscard]] std::int64_t pages_of_list() const {
    return std::int64_t{spec.index_topk} * (spec.index_block_size / part_keys);
  }
};

/// Room of a workspace.
struct SelectionSizes {
  std::int64_t tokens = 0;
  std::int64_t max_blocks = 0;  ///< that a token may come to see
  std::int64_t kv_entries = 0;
  std::int64_t rows = 1;  ///< tokens that are scored at once
  std::int32_t score_blocks = 1;

  /// Room beyond a batch's needs is for longer requests.
  void take_spare(const Indexer& indexer, std::int64_t spare_bytes);
};
[[nodiscard]] SelectionSizes selection_sizes(const Indexer& indexer, const BatchBounds& bounds);

/// Places of a workspace. From `groups` on it is a copy of the plan's image; page ids come last.
struct SelectionParts {
  float* scores = nullptr;                               ///< [rows, num_kv_heads, max_blocks]
  std::int32_t* pages = nullptr;                         ///< [tokens, num_kv_heads, pages_of_list]
  std::int32_t* kept = nullptr;                          ///< [tokens, num_kv_heads]: keys
  kernels::block_scores::sm80::Group* groups = nullptr;  ///< [tokens]
  kernels::block_scores::sm80::Share* shares = nullptr;  ///< [launches, score_blocks]
  std::int32_t* visible = nullptr;                       ///< [tokens]
  std::int32_t* entry_begin = nullptr;                   ///< [tokens]
  std::int32_t* kv_indices = nullptr;
};
[[nodiscard]] SelectionParts lay_out(plan::WorkspaceCutter& cut, const Indexer& indexer,
                                     const SelectionSizes& n);

/// A plan's share.
struct Selection {
  SelectionSizes sizes;
  SelectionParts parts;
  kernels::block_scores::sm80::Instance kernel;
  shared::cuda::ScoreRules rules;
  shared::cuda::ScoreList list;
  plan::WorkspaceImage image;
  std::vector<std::int32_t> visible, entry_begin;  ///< by token
};

/// Kernel and rules, as a plan's first batch has them: a captured launch keeps to them.
void begin_selection(const Indexer& indexer, std::int64_t longest_query, Selection& selection);
/// Lists a checked batch and sends what was listed; refuses one that needs more room.
[[nodiscard]] Status list_selection(const Indexer& indexer, const BatchView& batch,
                                    Selection& selection, Stream stream);

/// Lists, pages and counts of all tokens, by scores or from lists that the call brings.
[[nodiscard]] Status select_blocks(const Indexer& indexer, const Selection& selection,
                                   std::int32_t parts_of_page, const SparseCall& call,
                                   Stream stream);

}  // namespace attune::backends::minimax_sparse
