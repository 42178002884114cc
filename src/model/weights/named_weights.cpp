#include "model/weights/named_weights.hpp"

#include <algorithm>
#include <utility>

namespace attune::model {
namespace {

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

bool NamedWeights::add(std::string name, const WeightView& view) {
  if (unreadable_.contains(name) || !by_name_.try_emplace(name, weights_.size()).second)
    return false;
  weights_.push_back({.name = std::move(name), .view = view});
  return true;
}

bool NamedWeights::add_unreadable(std::string name, std::string reason) {
  return !by_name_.contains(name) &&
         unreadable_.try_emplace(std::move(name), std::move(reason)).second;
}

bool NamedWeights::has(std::string_view name) const {
  return by_name_.contains(name) || unreadable_.contains(name);
}

Result<WeightView> NamedWeights::find(std::string_view name,
                                      std::span<const std::int64_t> shape) const {
  const std::string quoted = "weight " + std::string(name);
  if (const auto reason = unreadable_.find(name); reason != unreadable_.end())
    return invalid_argument(quoted + " " + reason->second);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    std::string text =
        quoted + " is missing; the file has " + std::to_string(weights_.size()) + " weights";
    if (!weights_.empty()) text += ", the first of them " + weights_.front().name;
    return invalid_argument(std::move(text));
  }
  const WeightView& view = weights_[found->second].view;
  const std::span<const std::int64_t> have(view.shape.data(), static_cast<std::size_t>(view.rank));
  if (!shape.empty() && !std::ranges::equal(shape, have))
    return invalid_argument(quoted + " should have shape " + shape_text(shape) + ", the file has " +
                            shape_text(have));
  return view;
}

std::int64_t NamedWeights::total_bytes() const {
  std::int64_t sum = 0;
  for (const WeightInfo& w : weights_) sum += w.view.bytes();
  return sum;
}

}  // namespace attune::model
