#include "backends/dsa/cuda/plan.hpp"

#include <algorithm>

#include "base/join.hpp"
#include "base/math.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::dsa {
namespace {

Parts lay_out(plan::WorkspaceCutter& cut, const Sizes& n) {
  Parts parts;
  const std::int64_t rows = n.limits.part_blocks * n.rules.rows;
  parts.partial_o = cut.take<float>(rows * n.dim_vo);
  parts.partial_maximum = cut.take<float>(rows);
  parts.partial_sum = cut.take<float>(rows);
  parts.scores = cut.take<float>(n.scores);
  parts.slots = cut.take<std::int32_t>(n.tokens * n.topk);
  parts.kept = cut.take<std::int32_t>(n.tokens);
  parts.work = cut.take<attention::LatentWork>(1);
  parts.groups = cut.take<attention::LatentGroup>(n.rules.workers);
  parts.items = cut.take<attention::LatentItem>(n.limits.items);
  parts.merges = cut.take<attention::LatentMerge>(n.limits.merges);
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
  const BatchView tokens{.form = BatchForm::extend,
                         .source = KvSource::ragged,
                         .qo_indptr = plan.token_indptr,
                         .kv_indptr = plan.key_indptr};
  if (first) plan.shape = plan::latent_shape(plan.sizes.rules, tokens);
  plan::list_latent_work(tokens, plan.sizes.rules, plan.shape, plan.list);
  if (Status s = check_room(batch, plan); !s.ok()) return s;
  shared::cuda::list_scores(plan.visible, plan.entry_begin, plan.selection.rules,
                            plan.selection.list);
  // Lists lie topk entries apart, whatever their lengths.
  const auto list_of = [&](attention::LatentItem& item) {
    item.entry_begin = static_cast<std::int32_t>(item.q_token * plan.sizes.topk);
  };
  for (attention::LatentItem& item : plan.list.items) list_of(item);
  for (attention::LatentGroup& group : plan.list.groups) list_of(group.first);

  plan.image.clear();
  plan.image.cover(plan.parts.work, plan.parts.kv_indices + batch.kv_indices.size());
  plan.image.put_one(plan.parts.work,
                     {.num_items = static_cast<std::int32_t>(plan.list.items.size()),
                      .num_merges = static_cast<std::int32_t>(plan.list.merges.size()),
                      .most_parts = plan.list.most_parts});
  plan.image.put(plan.parts.groups, plan.list.groups);
  plan.image.put(plan.parts.items, plan.list.items);
  plan.image.put(plan.parts.merges, plan.list.merges);
  plan.image.put(plan.parts.score_groups, plan.selection.list.groups);
  plan.image.put(plan.parts.score_shares, plan.selection.list.shares);
  plan.image.put(plan.parts.visible, plan.visible);
  plan.image.put(plan.parts.entry_begin, plan.entry_begin);
  plan.image.put(plan.parts.kv_indices, batch.kv_indices);
  return {};
}

}  // namespace attune::backends::dsa
