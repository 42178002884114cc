// The backends that serve a model: one for prefill and one for decode of every attention group
// (layer runtime).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <attune/backend.hpp>
#include <attune/spec.hpp>

namespace attune::runtime {

struct GroupBackends {
  std::shared_ptr<Backend> prefill;
  std::shared_ptr<Backend> decode;  ///< the same object where one serves both
  KvLayout kv_layout = KvLayout::nhd;

  [[nodiscard]] Backend& of(Phase phase) const {
    return phase == Phase::prefill ? *prefill : *decode;
  }
};

struct BackendSet {
  std::int32_t page_size = 16;        ///< of every pool
  std::vector<GroupBackends> groups;  ///< one each of Model::groups()
};

}  // namespace attune::runtime
