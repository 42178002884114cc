// A step's rows become the arrays that the model and the backends read (layer runtime).
//
// Decodes come first, then verifications of drafts, then prefills; each part is a batch of its own,
// because several backends may serve them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <attune/batch.hpp>
#include <attune/status.hpp>

#include "attention/page_table.hpp"
#include "model/step.hpp"
#include "runtime/cache_groups.hpp"
#include "runtime/scheduler.hpp"

namespace attune::runtime {

/// One part of a step.
struct PartBatch {
  StepPart part = StepPart::prefill;
  std::int64_t first_row = 0;  ///< of the step's tokens
  std::int64_t num_rows = 0;
  std::vector<BatchView> views;  ///< one a cache group
  BatchView pageless;            ///< the same requests without pages, for linear groups
};

struct BatchShape {
  bool verify_as_decodes = false;  ///< drafts over pages become decodes, a request of a token each
  bool drafts_join_decodes = false;  ///< … and stand among the decodes
  /// Decodes are filled up to this many rows, without keys, states or a place to write, behind the
  /// others: a step of few shapes. Only where nothing follows the decodes.
  std::int64_t decode_rows = 0;
  std::int64_t logit_rows = 0;  ///< … and the rows whose logits are wanted to this many
  /// Drafts among the decodes: requests that linear layers are shown, those of no tokens included.
  std::int64_t draft_requests = 0;
};

/// Steps of one shape differ in what their arrays hold, not in how long these are.
struct StepShape {
  std::int64_t rows = 0;
  std::int64_t draft_requests = 0;  ///< of BatchShape; 0 where no linear layer verifies drafts

  [[nodiscard]] auto operator<=>(const StepShape&) const = default;
};

class StepBatch {
 public:
  /// Replaces the contents; `rows` go by part. Every row's pages are held already; what neighbours'
  /// pages have in common becomes the views' prefix_groups.
  Status assign(std::span<const ScheduledRow> rows, std::span<const CacheGroup> groups,
                std::int32_t page_size, const BatchShape& shape = {});

  [[nodiscard]] std::span<const std::int32_t> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const std::int32_t> positions() const { return positions_; }
  /// Rows whose logits are wanted, and how many of them each scheduled row has; those that fill up
  /// come last.
  [[nodiscard]] std::span<const std::int32_t> logit_rows() const { return logit_rows_; }
  [[nodiscard]] std::span<const std::int64_t> logits_per_row() const { return logits_per_row_; }
  /// Whose the rows are, in order; rows that fill up are nobody's.
  [[nodiscard]] std::span<const model::RequestRows> requests() const { return requests_; }
  /// Only parts with rows.
  [[nodiscard]] std::span<const PartBatch> parts() const { return parts_; }
  [[nodiscard]] std::span<const std::int64_t> slot_mapping(std::size_t cache_group) const {
    return slots_[cache_group];
  }
  [[nodiscard]] StepShape shape() const {
    return {.rows = static_cast<std::int64_t>(tokens_.size()), .draft_requests = draft_requests_};
  }

 private:
  /// Of one part: its rows, the empty ones behind them, and how they are seen.
  struct PartRows {
    StepPart part = StepPart::prefill;
    std::span<const ScheduledRow> rows;
    std::int64_t num_empty = 0;
    bool as_decodes = false;
    std::int64_t draft_requests = 0;
  };
  void fill_up(const BatchShape& shape);
  Status add_part(const PartRows& given, std::span<const CacheGroup> groups,
                  std::int32_t page_size);
  Status add_pages(const PartRows& given, std::size_t group, std::int32_t page_size,
                   PartBatch& batch);

  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> logit_rows_;
  std::vector<std::int64_t> logits_per_row_;
  std::vector<model::RequestRows> requests_;
  std::vector<PartBatch> parts_;
  std::array<std::vector<attention::PageTable>, kStepParts> tables_;  ///< by part, cache group
  std::array<std::vector<std::vector<PrefixGroup>>, kStepParts> prefix_groups_;  ///< likewise
  /// Of requests without pages, by part.
  struct Pageless {
    std::vector<std::int32_t> qo_indptr;
    std::vector<std::int32_t> zeros;  ///< [batch + 1]: kv_indptr and kv_last_page_len
    std::vector<std::int32_t> state_indices;
    std::vector<std::int32_t> draft_len;
    std::vector<std::int32_t> draft_states;

    void add(std::int64_t rows, std::int32_t state, std::int64_t drafts, std::int32_t draft_state);
  };
  std::array<Pageless, kStepParts> pageless_;
  std::vector<std::vector<std::int64_t>> slots_;  ///< by cache group, over all rows
  std::int64_t draft_requests_ = 0;
  std::vector<std::int32_t> page_ids_;
  std::vector<attention::PageTableRow> table_rows_;
};

}  // namespace attune::runtime
