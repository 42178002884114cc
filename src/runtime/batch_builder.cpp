#include "runtime/batch_builder.hpp"

#include <algorithm>

namespace attune::runtime {

Status StepBatch::assign(std::span<const ScheduledRow> rows, std::span<const CacheGroup> groups,
                         std::int32_t page_size) {
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  logits_per_row_.clear();
  phases_.clear();
  slots_.resize(groups.size());
  for (auto& slots : slots_) slots.clear();
  for (auto& tables : tables_) tables.resize(groups.size());
  for (const ScheduledRow& row : rows) {
    const Request& request = *row.request;
    const std::int64_t first_wanted = request.wants_all_rows() ? 0
                                      : row.completes()        ? row.count - 1
                                                               : row.count;
    for (std::int64_t i = 0; i < row.count; ++i) {
      const std::int64_t position = request.computed + i;
      if (i >= first_wanted) logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()));
      tokens_.push_back(request.tokens[static_cast<std::size_t>(position)]);
      positions_.push_back(static_cast<std::int32_t>(position));
    }
    logits_per_row_.push_back(row.count - first_wanted);
  }
  const auto split =
      std::find_if(rows.begin(), rows.end(), [](const ScheduledRow& row) { return !row.decode; });
  const auto num_decodes = static_cast<std::size_t>(split - rows.begin());
  if (Status s = add_phase(Phase::decode, rows.first(num_decodes), groups, page_size); !s.ok())
    return s;
  return add_phase(Phase::prefill, rows.subspan(num_decodes), groups, page_size);
}

Status StepBatch::add_phase(Phase phase, std::span<const ScheduledRow> rows,
                            std::span<const CacheGroup> groups, std::int32_t page_size) {
  if (rows.empty()) return {};
  PhaseBatch batch;
  batch.phase = phase;
  if (!phases_.empty()) batch.first_row = phases_.back().first_row + phases_.back().num_rows;
  Pageless& arrays = pageless_[static_cast<std::size_t>(phase)];
  arrays.state_indices.clear();
  arrays.qo_indptr.assign(1, 0);
  arrays.zeros.assign(rows.size() + 1, 0);
  for (const ScheduledRow& row : rows) {
    batch.num_rows += row.count;
    arrays.qo_indptr.push_back(static_cast<std::int32_t>(batch.num_rows));
    arrays.state_indices.push_back(row.request->state_slot);
  }
  const BatchForm form = phase == Phase::decode ? BatchForm::decode : BatchForm::extend;
  batch.pageless.form = form;
  batch.pageless.page_size = page_size;
  batch.pageless.qo_indptr = arrays.qo_indptr;
  batch.pageless.kv_indptr = arrays.zeros;
  batch.pageless.kv_last_page_len = std::span(arrays.zeros).first(rows.size());
  batch.pageless.state_indices = arrays.state_indices;

  for (std::size_t g = 0; g < groups.size(); ++g) {
    page_ids_.clear();
    for (const ScheduledRow& row : rows)
      for (PageId page : row.request->pages[g].pages())
        page_ids_.push_back(static_cast<std::int32_t>(page));
    table_rows_.clear();
    std::size_t first_page = 0;
    for (const ScheduledRow& row : rows) {
      const cache::RequestPages& pages = row.request->pages[g];
      table_rows_.push_back({.pages = std::span<const std::int32_t>(page_ids_).subspan(
                                 first_page, pages.pages().size()),
                             .kv_len = row.request->computed + row.count - pages.first_position(),
                             .qo_len = row.count,
                             .kv_offset = pages.first_position()});
      first_page += pages.pages().size();
    }
    attention::PageTable& table = tables_[static_cast<std::size_t>(phase)][g];
    if (Status s = table.assign(table_rows_, page_size); !s.ok()) return s;
    BatchView view = table.view(form);
    view.state_indices = arrays.state_indices;
    batch.views.push_back(view);
    const auto slots = table.slot_mapping();
    slots_[g].insert(slots_[g].end(), slots.begin(), slots.end());
  }
  phases_.push_back(std::move(batch));
  return {};
}

}  // namespace attune::runtime
