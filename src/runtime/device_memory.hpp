// Memory of the model's device with an owner that the cache can hold (layer runtime).
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <attune/status.hpp>

#include "model/ops.hpp"

namespace attune::runtime {

[[nodiscard]] inline Result<std::shared_ptr<void>> allocate_shared(model::Ops& ops,
                                                                   std::size_t bytes) {
  Result<model::Buffer> buffer = ops.allocate(bytes);
  if (!buffer.ok()) return buffer.status();
  const auto held = std::make_shared<model::Buffer>(std::move(*buffer));
  return std::shared_ptr<void>(held, held->data());
}

}  // namespace attune::runtime
