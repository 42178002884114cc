// Scales for integer KV caches, measured once before the first request (layer runtime).
//
// int8 has no exponent, so keys and values need factors: one a layer and KV head, the largest
// magnitude that a fixed text produces over 127. The text is the same for every request, so that no
// request's bits depend on another; values beyond its range saturate.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

#include "model/model.hpp"
#include "model/step.hpp"
#include "runtime/backend_set.hpp"

namespace attune::runtime {

/// Owns the factors that StepInput::kv_scales points to.
class KvScales {
 public:
  [[nodiscard]] std::span<const model::LayerKvScales> by_layer() const { return views_; }

 private:
  friend Result<KvScales> calibrate_kv(model::Model&, model::Ops&, BackendSet,
                                       std::span<const std::int32_t>);
  model::Buffer memory_;
  std::vector<model::LayerKvScales> views_;
};

/// `backends`: of the same groups with an fp32 cache. `tokens`: the text, inside the model's bounds
/// of one step.
Result<KvScales> calibrate_kv(model::Model& model, model::Ops& ops, BackendSet backends,
                              std::span<const std::int32_t> tokens);

/// A text of several kinds, for models with a tokenizer.
inline constexpr std::string_view kCalibrationText =
    "The harbour was quiet when the last boat came in, and nobody asked where it had been. "
    "Water boils at 100 degrees Celsius at sea level; on a mountain of 3,000 metres it needs only "
    "about 90. def total(prices, tax=0.07): return sum(prices) * (1 + tax) In 1905 a clerk in Bern "
    "wrote four papers that changed physics. \"Are you coming?\" she asked. \"No,\" he said, "
    "\"not before Tuesday.\" Mix two eggs, 250 g of flour and a pinch of salt, then let the dough "
    "rest for half an hour. Die Sonne scheint, und le chat dort sur la table. SELECT name, age "
    "FROM "
    "users WHERE age > 30; The committee approved the budget by a vote of seven to two.";

/// Groups whose KV type needs such scales.
[[nodiscard]] bool needs_calibration(const BackendSet& backends);

}  // namespace attune::runtime
