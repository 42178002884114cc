#include "backends/dsa/cuda/plan.hpp"

#include <algorithm>

#include "base/join.hpp"
#include "base/math.hpp"
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
  parts.score_groups = cut.take<kernels::index_scores::sm90::Group>(n.tokens);
  parts.score_shares = cut.take<kernels::index_scores::sm90::Share>(
      base::ceil_div(n.tokens, n.score_rows()) * n.score_blocks);
  parts.visible = cut.take<std::int32_t>(n.tokens);
  parts.entry_begin = cut.take<std::int32_t>(n.tokens);
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

Status check_room(const BatchView& batch, const DsaPlan& plan) {
  const Sizes& room = plan.sizes;
  const auto items = static_cast<std::int64_t>(plan.list.items.size());
  const auto merges = static_cast<std::int64_t>(plan.list.merges.size());
  const std::int64_t blocks = std::int64_t{plan.list.places} * plan.shape.lanes;
  const auto entries = static_cast<std::int64_t>(batch.kv_indices.size());
  const std::int64_t longest =
      plan.visible.empty() ? 0 : *std::max_element(plan.visible.begin(), plan.visible.end());
  if (items <= room.limits.items && merges <= room.limits.merges &&
      blocks <= room.limits.part_blocks && entries <= room.kv_entries && longest <= room.max_kv_len)
    return {};
  return invalid_argument(base::join("the plan's workspace holds ", room.limits.items, " items, ",
                                     room.limits.part_blocks, " parts, ", room.kv_entries,
                                     " page ids and scores of ", room.max_kv_len,
                                     " keys, the batch needs ", items, ", ", blocks, ", ", entries,
                                     " and ", longest, ": make a new plan"));
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
  if (Status s = check_room(batch, plan); !s.ok()) return s;
  shared::cuda::list_scores(plan.visible, plan.entry_begin, plan.selection.rules,
                            plan.selection.list);
  shared::cuda::begin_image(plan.parts, plan.list, plan.parts.kv_indices + batch.kv_indices.size(),
                            plan.image);
  plan.image.put(plan.parts.score_groups, plan.selection.list.groups);
  plan.image.put(plan.parts.score_shares, plan.selection.list.shares);
  plan.image.put(plan.parts.visible, plan.visible);
  plan.image.put(plan.parts.entry_begin, plan.entry_begin);
  plan.image.put(plan.parts.kv_indices, batch.kv_indices);
  return {};
}

}  // namespace attune::backends::dsa
