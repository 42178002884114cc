#include "backends/shared/cuda/latent_work.hpp"

#include <algorithm>

#include <attune/batch.hpp>

#include "base/join.hpp"

namespace attune::backends::shared::cuda {

namespace mla = kernels::mla_decode;

void cut_partials(plan::WorkspaceCutter& cut, const plan::LatentRules& rules,
                  const plan::LatentLimits& limits, std::int64_t dim_vo, LatentParts& parts) {
  const std::int64_t rows = limits.part_blocks * rules.rows;
  parts.partial_o = cut.take<float>(rows * dim_vo);
  parts.partial_maximum = cut.take<float>(rows);
  parts.partial_sum = cut.take<float>(rows);
}

void cut_lists(plan::WorkspaceCutter& cut, const plan::LatentRules& rules,
               const plan::LatentLimits& limits, LatentParts& parts) {
  parts.work = cut.take<attention::LatentWork>(1);
  parts.groups = cut.take<attention::LatentGroup>(rules.workers);
  parts.items = cut.take<attention::LatentItem>(limits.items);
  parts.merges = cut.take<attention::LatentMerge>(limits.merges);
}

Status check_room(const plan::LatentLimits& limits, std::int64_t max_entries,
                  const plan::LatentShape& shape, const plan::LatentList& list,
                  std::size_t entries) {
  const auto items = static_cast<std::int64_t>(list.items.size());
  const auto merges = static_cast<std::int64_t>(list.merges.size());
  const std::int64_t parts = std::int64_t{list.places} * shape.lanes;
  const std::int64_t counters = std::int64_t{list.meetings} * shape.lanes;
  const auto num_entries = static_cast<std::int64_t>(entries);
  if (items <= limits.items && merges <= limits.merges && parts <= limits.part_blocks &&
      counters <= limits.counters && num_entries <= max_entries)
    return {};
  return invalid_argument(base::join("the plan's workspace holds ", limits.items, " items, ",
                                     limits.part_blocks, " parts and ", max_entries,
                                     " page ids, the batch needs ", items, ", ", parts, " and ",
                                     num_entries, ": make a new plan"));
}

void begin_image(const LatentParts& parts, const plan::LatentList& list, const void* end,
                 plan::WorkspaceImage& image) {
  image.clear();
  image.cover(parts.work, end);
  image.put_one(parts.work, {.num_items = static_cast<std::int32_t>(list.items.size()),
                             .num_merges = static_cast<std::int32_t>(list.merges.size()),
                             .most_parts = list.most_parts});
  image.put(parts.groups, list.groups);
  image.put(parts.items, list.items);
  image.put(parts.merges, list.merges);
}

void list_token_work(const std::vector<std::int32_t>& token_indptr,
                     const std::vector<std::int32_t>& key_indptr, std::int64_t stride,
                     const plan::LatentRules& rules, bool first, plan::LatentShape& shape,
                     plan::LatentList& list) {
  const BatchView tokens{.form = BatchForm::extend,
                         .source = KvSource::ragged,
                         .qo_indptr = token_indptr,
                         .kv_indptr = key_indptr};
  if (first) shape = plan::latent_shape(rules, tokens);
  plan::list_latent_work(tokens, rules, shape, list);
  const auto list_of = [stride](attention::LatentItem& item) {
    item.entry_begin = static_cast<std::int32_t>(item.q_token * stride);
  };
  for (attention::LatentItem& item : list.items) list_of(item);
  for (attention::LatentGroup& group : list.groups) list_of(group.first);
}

void set_work(const LatentParts& parts, mla::Params& p) {
  p.work = parts.work;
  p.groups = parts.groups;
  p.items = parts.items;
  p.merges = parts.merges;
  p.partial_o = parts.partial_o;
  p.partial_maximum = parts.partial_maximum;
  p.partial_sum = parts.partial_sum;
}

mla::Grid grid_of(const LatentSetup& setup, const plan::LatentLimits& limits,
                  const plan::LatentShape& shape, const mla::Params& p) {
  const std::int64_t most_joined =
      limits.merges * p.lanes * p.heads_per_block * p.tokens_per_block * mla::kMergeSlices;
  return {
      .blocks = plan::latent_groups(setup.rules, shape) * shape.lanes,
      .merge_blocks = static_cast<int>(std::min<std::int64_t>(setup.merge_blocks, most_joined))};
}

}  // namespace attune::backends::shared::cuda
