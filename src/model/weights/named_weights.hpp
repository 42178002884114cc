// The WeightStore every file format fills: names, views, the maps they point into (layer model).
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/weights/mapped_file.hpp"
#include "model/weights/weight_store.hpp"

namespace attune::model {

class NamedWeights : public WeightStore {
 public:
  /// False if the name is there already.
  [[nodiscard]] bool add(std::string name, const WeightView& view);
  /// A tensor the file has but a WeightView cannot hold; asking for it gives `reason`.
  [[nodiscard]] bool add_unreadable(std::string name, std::string reason);
  void keep(MappedFile file) { files_.push_back(std::move(file)); }

  [[nodiscard]] std::span<const WeightInfo> weights() const override { return weights_; }
  [[nodiscard]] bool has(std::string_view name) const override;
  Result<WeightView> find(std::string_view name,
                          std::span<const std::int64_t> shape) const override;
  [[nodiscard]] std::int64_t total_bytes() const override;

 private:
  std::vector<WeightInfo> weights_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string, std::less<>> unreadable_;
  std::vector<MappedFile> files_;
};

}  // namespace attune::model
