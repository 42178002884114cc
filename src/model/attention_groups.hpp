// ModelConfig → what is asked of attention: one AttentionSpec a group of like layers (layer model).
#pragma once

#include <string>
#include <vector>

#include <attune/spec.hpp>
#include <attune/status.hpp>

#include "model/config.hpp"

namespace attune::model {

struct AttentionGroup {
  std::vector<int> layers;  ///< ascending; of the encoder if `encoder`
  std::string kind;         ///< full, sliding, …, gdn, …: the word `explain` prints
  AttentionSpec spec;
  bool encoder = false;
};

struct GroupDTypes {
  DType compute = DType::bf16;  ///< of q and o
  DType kv = DType::bf16;
};

/// Softmax groups in order of ModelConfig::attention, then the linear ones. Only variants' own
/// forms: MLA is absorbed.
[[nodiscard]] std::vector<AttentionGroup> attention_groups(const ModelConfig& config,
                                                           const GroupDTypes& dtypes);

}  // namespace attune::model
