// ModelConfig → what is asked of attention: one AttentionSpec a group of like layers (layer model).
#pragma once

#include <string>
#include <vector>

#include <attune/device.hpp>
#include <attune/spec.hpp>
#include <attune/status.hpp>

#include "model/config.hpp"

namespace attune::model {

struct AttentionGroup {
  std::vector<int> layers{};  ///< ascending; of the encoder if `encoder`
  std::string kind{};         ///< full, sliding, …, gdn, …: the word `explain` prints
  AttentionSpec spec{};
  bool encoder = false;
};

struct GroupDTypes {
  DType compute = DType::bf16;  ///< of q and o
  DType kv = DType::bf16;
};

/// The checkpoint's types; on an accelerator fp32 becomes bf16.
[[nodiscard]] GroupDTypes auto_dtypes(const ModelConfig& config, DeviceKind device);

/// In order of first layer; a layer of two mixers stands in two groups. MLA is in absorbed form.
[[nodiscard]] std::vector<AttentionGroup> attention_groups(const ModelConfig& config,
                                                           const GroupDTypes& dtypes);

}  // namespace attune::model
