#include "runtime/batch_builder.hpp"

#include <algorithm>

#include "attention/prefix_groups.hpp"

namespace attune::runtime {

namespace {

BatchForm form_of(StepPart part) {
  switch (part) {
    case StepPart::decode: return BatchForm::decode;
    case StepPart::verify: return BatchForm::target_verify;
    case StepPart::prefill: return BatchForm::extend;
  }
  return BatchForm::extend;
}

/// The first of a row's tokens whose logits are wanted: of a verification, the newest known one.
std::int64_t first_wanted(const ScheduledRow& row) {
  const std::int64_t last = row.completes() ? row.count - 1 : row.count;
  return std::clamp<std::int64_t>(row.request->first_wanted() - row.request->computed, 0, last);
}

std::int32_t token_of(const ScheduledRow& row, std::int64_t i) {
  const Request& request = *row.request;
  if (i >= row.count) return request.drafts[static_cast<std::size_t>(i - row.count)];
  return request.tokens[static_cast<std::size_t>(request.computed + i)];
}

}  // namespace

Status StepBatch::assign(std::span<const ScheduledRow> rows, std::span<const CacheGroup> groups,
                         std::int32_t page_size, const BatchShape& shape) {
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  logits_per_row_.clear();
  requests_.clear();
  parts_.clear();
  draft_requests_ = 0;
  slots_.resize(groups.size());
  for (auto& slots : slots_) slots.clear();
  for (auto& tables : tables_) tables.resize(groups.size());
  for (auto& found : prefix_groups_) found.resize(groups.size());
  for (const ScheduledRow& row : rows) {
    const std::int64_t wanted = first_wanted(row);
    for (std::int64_t i = 0; i < row.num_rows(); ++i) {
      if (i >= wanted) logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()));
      tokens_.push_back(token_of(row, i));
      positions_.push_back(static_cast<std::int32_t>(row.request->computed + i));
    }
    logits_per_row_.push_back(row.num_rows() - wanted);
  }
  const auto part_of = [&](const ScheduledRow& row) {
    const bool joins = shape.drafts_join_decodes && row.part() == StepPart::verify;
    return joins ? StepPart::decode : row.part();
  };
  const auto known = static_cast<std::int64_t>(tokens_.size());
  for (std::size_t begin = 0; begin < rows.size();) {
    const StepPart part = part_of(rows[begin]);
    std::size_t end = begin + 1;
    while (end < rows.size() && part_of(rows[end]) == part) ++end;
    const bool drafts = rows[end - 1].part() == StepPart::verify;
    PartRows given{.part = part,
                   .rows = rows.subspan(begin, end - begin),
                   .as_decodes = shape.verify_as_decodes && drafts};
    if (part == StepPart::decode && shape.decode_rows > 0) {
      require(end == rows.size(), "nothing follows decodes that are filled up");
      fill_up(shape);
      given.num_empty = std::max<std::int64_t>(shape.decode_rows - known, 0);
      if (given.as_decodes) draft_requests_ = given.draft_requests = shape.draft_requests;
    }
    if (Status s = add_part(given, groups, page_size); !s.ok()) return s;
    begin = end;
  }
  return {};
}

void StepBatch::fill_up(const BatchShape& shape) {
  while (static_cast<std::int64_t>(tokens_.size()) < shape.decode_rows) {
    tokens_.push_back(0);
    positions_.push_back(0);
  }
  require(static_cast<std::int64_t>(logit_rows_.size()) <= shape.logit_rows,
          "no more logits than the shape has room for");
  // Any row will do: nobody reads these logits.
  while (static_cast<std::int64_t>(logit_rows_.size()) < shape.logit_rows)
    logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()) - 1);
}

void StepBatch::Pageless::add(std::int64_t rows, std::int32_t state, std::int64_t drafts,
                              std::int32_t draft_state) {
  qo_indptr.push_back(qo_indptr.back() + static_cast<std::int32_t>(rows));
  state_indices.push_back(state);
  draft_len.push_back(static_cast<std::int32_t>(drafts));
  draft_states.push_back(draft_state);
}

Status StepBatch::add_part(const PartRows& given, std::span<const CacheGroup> groups,
                           std::int32_t page_size) {
  const StepPart part = given.part;
  PartBatch batch;
  batch.part = part;
  if (!parts_.empty()) batch.first_row = parts_.back().first_row + parts_.back().num_rows;
  Pageless& arrays = pageless_[static_cast<std::size_t>(part)];
  arrays.state_indices.clear();
  arrays.draft_len.clear();
  arrays.draft_states.clear();
  arrays.qo_indptr.assign(1, 0);
  for (const ScheduledRow& row : given.rows) {
    const std::int32_t draft_state = row.drafts > 0 ? row.request->draft_state_slot : -1;
    requests_.push_back({.first_row = batch.first_row + arrays.qo_indptr.back(),
                         .num_rows = row.num_rows(),
                         .state = row.request->state_slot,
                         .num_drafts = row.drafts,
                         .draft_state = draft_state});
    arrays.add(row.num_rows(), row.request->state_slot, row.drafts, draft_state);
  }
  if (given.draft_requests == 0) {
    for (std::int64_t i = 0; i < given.num_empty; ++i) arrays.add(1, -1, 0, -1);
  } else {
    arrays.add(given.num_empty, -1, 0, -1);
    while (static_cast<std::int64_t>(arrays.state_indices.size()) < given.draft_requests)
      arrays.add(0, -1, 0, -1);
  }
  batch.num_rows = arrays.qo_indptr.back();
  const std::size_t num_requests = arrays.state_indices.size();
  arrays.zeros.assign(num_requests + 1, 0);
  const StepPart seen = given.as_decodes ? StepPart::verify : part;
  batch.pageless.form = form_of(seen);
  batch.pageless.page_size = page_size;
  batch.pageless.qo_indptr = arrays.qo_indptr;
  batch.pageless.kv_indptr = arrays.zeros;
  batch.pageless.kv_last_page_len = std::span(arrays.zeros).first(num_requests);
  batch.pageless.state_indices = arrays.state_indices;
  if (seen == StepPart::verify) {
    batch.pageless.draft_len = arrays.draft_len;
    batch.pageless.draft_states = arrays.draft_states;
  }
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (Status s = add_pages(given, g, page_size, batch); !s.ok()) return s;
  parts_.push_back(std::move(batch));
  return {};
}

Status StepBatch::add_pages(const PartRows& given, std::size_t group, std::int32_t page_size,
                            PartBatch& batch) {
  page_ids_.clear();
  for (const ScheduledRow& row : given.rows)
    for (PageId page : row.request->pages[group].pages())
      page_ids_.push_back(static_cast<std::int32_t>(page));
  table_rows_.clear();
  std::size_t first_page = 0;
  for (const ScheduledRow& row : given.rows) {
    const cache::RequestPages& pages = row.request->pages[group];
    const std::int64_t qo_len = given.as_decodes ? 1 : row.num_rows();
    for (std::int64_t end = qo_len; end <= row.num_rows(); ++end) {
      table_rows_.push_back({.pages = std::span<const std::int32_t>(page_ids_).subspan(
                                 first_page, pages.pages().size()),
                             .kv_len = row.request->computed + end - pages.first_position(),
                             .qo_len = qo_len,
                             .kv_offset = pages.first_position()});
    }
    first_page += pages.pages().size();
  }
  for (std::int64_t i = 0; i < given.num_empty; ++i) table_rows_.push_back({.qo_len = 1});
  attention::PageTable& table = tables_[static_cast<std::size_t>(batch.part)][group];
  if (Status s = table.assign(table_rows_, page_size); !s.ok()) return s;
  BatchView view = table.view(given.as_decodes ? BatchForm::decode : form_of(batch.part));
  if (!given.as_decodes) view.state_indices = batch.pageless.state_indices;
  std::vector<PrefixGroup>& shared = prefix_groups_[static_cast<std::size_t>(batch.part)][group];
  shared.clear();
  // Drafts run as decodes so that they round as decoding does: a level of shared keys would not.
  if (!given.as_decodes) attention::find_prefix_groups(view, shared);
  view.prefix_groups = shared;
  batch.views.push_back(view);
  const auto slots = table.slot_mapping();
  slots_[group].insert(slots_[group].end(), slots.begin(), slots.end());
  return {};
}

}  // namespace attune::runtime
