// Decode steps that are recorded once and replayed (layer runtime): a CUDA graph instead of a
// launch a verb and layer, where a step is short and launching is what takes its time.
//
// Decodes are filled up to few numbers of rows (filled_up), their plans stay at their addresses
// (step_plans.hpp), inputs too. A step whose plans are not those of the recording is issued, and
// the next one recorded anew.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <attune/status.hpp>

#include "model/model.hpp"
#include "model/ops.hpp"
#include "model/step.hpp"
#include "runtime/batch_builder.hpp"

namespace attune::runtime {

/// What `count` rows or requests are filled up to, at most `most`: powers of two, then multiples of
/// eight.
[[nodiscard]] std::int64_t filled_up(std::int64_t count, std::int64_t most);

struct GraphStatistics {
  std::int64_t recorded = 0;
  std::int64_t replayed = 0;
  std::int64_t issued = 0;  ///< decode steps that were not replayed
  std::string refusal;      ///< why nothing is recorded; empty where it is
};

class GraphReplay {
 public:
  /// Both outlive this. `refusal`: not empty = everything is issued, for this reason.
  GraphReplay(model::Model& model, model::Ops& ops, std::string refusal)
      : model_(model), ops_(ops), statistics_{.refusal = std::move(refusal)} {}

  /// Model::compute of a step of decodes alone, and drafts among them, of this shape, whose plans
  /// are of this edition.
  Status compute(const model::StepInput& input, const StepShape& shape, std::int64_t edition);

  [[nodiscard]] const GraphStatistics& statistics() const { return statistics_; }

 private:
  struct Step {
    std::int64_t edition = 0;  ///< of the step issued last
    std::unique_ptr<model::Recording> recording;
  };

  model::Model& model_;
  model::Ops& ops_;
  std::map<StepShape, Step> steps_;
  GraphStatistics statistics_;
};

}  // namespace attune::runtime
