#include "backends/minimax_sparse/cuda/selection.hpp"

#include <algorithm>

#include "backends/shared/alignment.hpp"
#include "backends/shared/cuda/selection.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/block_lists/sm80/launch.hpp"

namespace attune::backends::minimax_sparse {
namespace {

namespace scores = kernels::block_scores::sm80;
namespace lists = kernels::block_lists::sm80;
using device::cuda::native;

Status check_room(const BatchView& batch, const Indexer& indexer, const Selection& selection) {
  const auto entries = static_cast<std::int64_t>(batch.kv_indices.size());
  const std::int64_t longest =
      selection.visible.empty()
          ? 0
          : *std::max_element(selection.visible.begin(), selection.visible.end());
  const std::int64_t blocks = base::ceil_div<std::int64_t>(longest, indexer.spec.index_block_size);
  if (entries <= selection.sizes.kv_entries && blocks <= selection.sizes.max_blocks) return {};
  return invalid_argument(base::join("the plan's workspace holds ", selection.sizes.kv_entries,
                                     " page ids and scores of ", selection.sizes.max_blocks,
                                     " blocks, the batch needs ", entries, " and ", blocks,
                                     ": make a new plan"));
}

/// Of `count` tokens from `first` on, which is a multiple of a launch's.
Status score(const Indexer& indexer, const Selection& selection, const SparseCall& call,
             std::int64_t first, Stream stream) {
  const scores::Params params{
      .q = call.index_q.data,
      .q_token_stride = call.index_q.stride[0],
      .q_head_stride = call.index_q.stride[1],
      .keys = call.index_cache.data,
      .page_stride = call.index_cache.stride[0],
      .token_stride = call.index_cache.stride[1],
      .page = base::FastDivisor(static_cast<std::uint32_t>(indexer.page_size)),
      .kv_indices = selection.parts.kv_indices,
      .visible = selection.parts.visible,
      .scores = selection.parts.scores,
      .stride = selection.sizes.max_blocks,
      .first_token = static_cast<std::int32_t>(first),
      .num_heads = indexer.spec.index_num_heads,
      .head_dim = indexer.spec.index_head_dim,
      .block_size = indexer.spec.index_block_size,
      .groups = selection.parts.groups,
      .shares = selection.parts.shares + first / selection.rules.rows * selection.rules.blocks};
  return scores::launch(selection.kernel, params, selection.rules.blocks, native(stream));
}

}  // namespace

SelectionSizes selection_sizes(const Indexer& indexer, const BatchBounds& bounds) {
  const std::int64_t heads = indexer.spec.num_kv_heads;
  const std::int64_t blocks =
      base::ceil_div<std::int64_t>(bounds.max_kv_len, indexer.spec.index_block_size);
  SelectionSizes n{.tokens = bounds.max_qo_tokens,
                   .max_blocks = blocks,
                   .kv_entries = bounds.max_kv_entries,
                   .score_blocks = scores::kBlocksPerSm * indexer.num_sms};
  const std::int64_t room = shared::cuda::room_for_scores(n.tokens, heads * blocks);
  n.rows = shared::cuda::score_rows(room, n.tokens, heads * blocks);
  return n;
}

void SelectionSizes::take_spare(const Indexer& indexer, std::int64_t spare_bytes) {
  // A block more is a score of each head and row, and its pages once a token.
  constexpr std::int64_t kAlignments = 2 * 64;
  const std::int64_t pages = base::ceil_div(indexer.spec.index_block_size, indexer.page_size) *
                             std::max<std::int64_t>(1, tokens);
  const std::int64_t a_block = 4 * (rows * indexer.spec.num_kv_heads + pages);
  const std::int64_t more = std::max<std::int64_t>(0, spare_bytes - kAlignments) / a_block;
  max_blocks += more;
  kv_entries += more * pages;
}

SelectionParts lay_out(plan::WorkspaceCutter& cut, const Indexer& indexer,
                       const SelectionSizes& n) {
  const std::int64_t heads = indexer.spec.num_kv_heads;
  SelectionParts parts;
  parts.scores = cut.take<float>(n.rows * heads * n.max_blocks);
  parts.pages = cut.take<std::int32_t>(n.tokens * heads * indexer.pages_of_list());
  parts.kept = cut.take<std::int32_t>(n.tokens * heads);
  parts.groups = cut.take<scores::Group>(n.tokens);
  parts.shares = cut.take<scores::Share>(base::ceil_div(n.tokens, n.rows) * n.score_blocks);
  parts.visible = cut.take<std::int32_t>(n.tokens);
  parts.entry_begin = cut.take<std::int32_t>(n.tokens);
  parts.kv_indices = cut.take<std::int32_t>(n.kv_entries);
  return parts;
}

void begin_selection(const Indexer& indexer, std::int64_t longest_query, Selection& selection) {
  const AttentionSpec& spec = indexer.spec;
  selection.kernel = scores::instance_of(spec.q_dtype, spec.index_num_heads, spec.index_head_dim,
                                         std::max<std::int64_t>(1, longest_query));
  selection.rules = {.topk = std::int64_t{spec.index_topk} * spec.index_block_size,
                     .rows = selection.sizes.rows,
                     .tokens_per_group = selection.kernel.columns / spec.index_num_heads,
                     .blocks = selection.sizes.score_blocks,
                     .keys_of_tile = spec.index_block_size};
}

Status list_selection(const Indexer& indexer, const BatchView& batch, Selection& selection,
                      Stream stream) {
  selection.visible.clear();
  selection.entry_begin.clear();
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t queries = batch.qo_len(i);
    for (std::int64_t row = 0; row < queries; ++row) {
      selection.visible.push_back(static_cast<std::int32_t>(
          std::max<std::int64_t>(0, batch.kv_len(i) - queries + row + 1)));
      selection.entry_begin.push_back(batch.kv_indptr[static_cast<std::size_t>(i)]);
    }
  }
  if (Status s = check_room(batch, indexer, selection); !s.ok()) return s;
  shared::cuda::list_scores(selection.visible, selection.entry_begin, selection.rules,
                            selection.list);
  const SelectionParts& parts = selection.parts;
  plan::WorkspaceImage& image = selection.image;
  image.cover(parts.groups, parts.kv_indices + batch.kv_indices.size());
  image.put(parts.groups, selection.list.groups);
  image.put(parts.shares, selection.list.shares);
  image.put(parts.visible, selection.visible);
  image.put(parts.entry_begin, selection.entry_begin);
  image.put(parts.kv_indices, batch.kv_indices);
  return device::cuda::copy_to_device(image.place(), image.data(), image.bytes(), stream,
                                      "minimax_sparse: copying a plan to the device");
}

Status select_blocks(const Indexer& indexer, const Selection& selection, std::int32_t parts_of_page,
                     const SparseCall& call, Stream stream) {
  const AttentionSpec& spec = indexer.spec;
  const std::int64_t tokens = selection.sizes.tokens;
  lists::Params keep{.scores = selection.parts.scores,
                     .scores_stride = selection.sizes.max_blocks,
                     .lists = call.topk_indices.as<std::int32_t>(),
                     .lists_token_stride = call.topk_indices.stride[0],
                     .lists_head_stride = call.topk_indices.stride[1],
                     .kv_indices = selection.parts.kv_indices,
                     .entry_begin = selection.parts.entry_begin,
                     .visible = selection.parts.visible,
                     .page = base::FastDivisor(static_cast<std::uint32_t>(indexer.page_size)),
                     .part = base::FastDivisor(static_cast<std::uint32_t>(indexer.part_keys)),
                     .parts_of_page = parts_of_page,
                     .pages = selection.parts.pages,
                     .pages_stride = indexer.pages_of_list(),
                     .kept = selection.parts.kept,
                     .num_tokens = static_cast<std::int32_t>(tokens),
                     .num_heads = spec.num_kv_heads,
                     .block_size = spec.index_block_size,
                     .topk = spec.index_topk,
                     .init_blocks = spec.index_init_blocks,
                     .local_blocks = spec.index_local_blocks};
  if (!call.index_q.defined()) return lists::launch_read(keep, native(stream));
  if (selection.kernel.aligned) {
    if (Status s = shared::check_alignment("index_q", call.index_q); !s.ok()) return s;
    if (Status s = shared::check_alignment("the index cache", call.index_cache); !s.ok()) return s;
  }
  // A captured run meets longer requests: what it may see at most decides.
  const bool scored = selection.sizes.max_blocks > spec.index_topk;
  for (std::int64_t first = 0; first < tokens; first += selection.rules.rows) {
    if (scored)
      if (Status s = score(indexer, selection, call, first, stream); !s.ok()) return s;
    keep.first_token = static_cast<std::int32_t>(first);
    keep.num_tokens = static_cast<std::int32_t>(std::min(selection.rules.rows, tokens - first));
    if (Status s = lists::launch_choose(keep, native(stream)); !s.ok()) return s;
  }
  return {};
}

}  // namespace attune::backends::minimax_sparse
