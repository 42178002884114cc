// A step's rows become the arrays that the model and the backends read (layer runtime).
//
// Decodes come first, then prefills; each phase is a batch of its own, because two backends may
// serve them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <attune/batch.hpp>
#include <attune/status.hpp>

#include "attention/page_table.hpp"
#include "runtime/cache_groups.hpp"
#include "runtime/scheduler.hpp"

namespace attune::runtime {

/// One phase of a step.
struct PhaseBatch {
  Phase phase = Phase::prefill;
  std::int64_t first_row = 0;  ///< of the step's tokens
  std::int64_t num_rows = 0;
  std::vector<BatchView> views;  ///< one a cache group
  BatchView pageless;            ///< the same requests without pages, for linear groups
};

class StepBatch {
 public:
  /// Replaces the contents; `rows` has its decodes first. Every row's pages are held already.
  Status assign(std::span<const ScheduledRow> rows, std::span<const CacheGroup> groups,
                std::int32_t page_size);

  [[nodiscard]] std::span<const std::int32_t> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const std::int32_t> positions() const { return positions_; }
  /// Rows whose logits are wanted, and how many of them each scheduled row has.
  [[nodiscard]] std::span<const std::int32_t> logit_rows() const { return logit_rows_; }
  [[nodiscard]] std::span<const std::int64_t> logits_per_row() const { return logits_per_row_; }
  /// Only phases with rows.
  [[nodiscard]] std::span<const PhaseBatch> phases() const { return phases_; }
  [[nodiscard]] std::span<const std::int64_t> slot_mapping(std::size_t cache_group) const {
    return slots_[cache_group];
  }

 private:
  Status add_phase(Phase phase, std::span<const ScheduledRow> rows,
                   std::span<const CacheGroup> groups, std::int32_t page_size);

  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> logit_rows_;
  std::vector<std::int64_t> logits_per_row_;
  std::vector<PhaseBatch> phases_;
  std::array<std::vector<attention::PageTable>, 2> tables_;  ///< by phase, then cache group
  /// Of requests without pages, by phase.
  struct Pageless {
    std::vector<std::int32_t> qo_indptr;
    std::vector<std::int32_t> zeros;  ///< [batch + 1]: kv_indptr and kv_last_page_len
    std::vector<std::int32_t> state_indices;
  };
  std::array<Pageless, 2> pageless_;
  std::vector<std::vector<std::int64_t>> slots_;  ///< by cache group, over all rows
  std::vector<std::int32_t> page_ids_;
  std::vector<attention::PageTableRow> table_rows_;
};

}  // namespace attune::runtime
