#include "backends/dsa/cuda/plan.hpp"

#include <algorithm>

#include "plan/workspace.hpp"

namespace attune::backends::dsa {
namespace {

Parts lay_out(plan::WorkspaceCutter& cut, const Sizes& n) {
  Parts parts;
  shared::cuda::cut_partials(cut, n.rules, n.limits, n.dim_vo, parts);
  parts.scores = cut.take<float>(n.scores);
  parts.slots = cut.take<std::int32_t>(n.tokens * n.topk);
  parts.kept = cut.take<std::int32_t>(n.tokens);
  shared::cuda::cut_lists(cut, n.rules, n.limits, parts);
  shared::cuda::cut_selection(cut, n.tokens, n.score_rows(), n.score_blocks, parts);
  parts.kv_indices = cut.take<std::int32_t>(n.kv_entries);
  return parts;
}

/// What each token sees, and tokens as requests over the keys they keep at most.
void place_tokens(const BatchView& batch, DsaPlan& plan) {
  plan.visible.clear();
  plan.entry_begin.clear();
  plan.token_indptr.assign(1, 0);
  plan.key_indptr.assign(1, 0);
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t queries = batch.qo_len(i);
    for (std::int64_t row = 0; row < queries; ++row) {
      const auto seen =
          static_cast<std::int32_t>(std::max<std::int64_t>(0, batch.kv_len(i) - queries + row + 1));
      plan.visible.push_back(seen);
      plan.entry_begin.push_back(batch.kv_indptr[static_cast<std::size_t>(i)]);
      plan.token_indptr.push_back(plan.token_indptr.back() + 1);
      // What is expected: a list that is given may be shorter, or longer where it names keys twice.
      plan.key_indptr.push_back(plan.key_indptr.back() +
                                std::min(seen, static_cast<std::int32_t>(plan.sizes.topk)));
    }
  }
}

}  // namespace

std::size_t workspace_bytes(const Sizes& sizes) {
  plan::WorkspaceCutter count;
  lay_out(count, sizes);
  return count.bytes();
}

Parts lay_out(void* workspace, const Sizes& sizes) {
  plan::WorkspaceCutter cut(workspace);
  return lay_out(cut, sizes);
}

Status make_image(const BatchView& batch, bool first, DsaPlan& plan) {
  place_tokens(batch, plan);
  shared::cuda::list_token_work(plan.token_indptr, plan.key_indptr, plan.sizes.topk,
                                plan.sizes.rules, first, plan.shape, plan.list);
  const std::size_t entries = batch.kv_indices.size();
  if (Status s = shared::cuda::check_room(plan.sizes.limits, plan.sizes.kv_entries, plan.shape,
                                          plan.list, entries);
      !s.ok())
    return s;
  if (Status s = shared::cuda::check_seen(plan.selection, plan.visible); !s.ok()) return s;
  shared::cuda::begin_image(plan.parts, plan.list, plan.parts.kv_indices + entries, plan.image);
  shared::cuda::put_selection(plan.visible, plan.entry_begin, plan.selection, plan.image);
  plan.image.put(plan.parts.kv_indices, batch.kv_indices);
  return {};
}

}  // namespace attune::backends::dsa
