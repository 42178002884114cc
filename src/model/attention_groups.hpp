// ModelConfig → what is asked of attention: one AttentionSpec a group of like layers (layer model).
#pragma once

#include <vector>

#include <attune/registry.hpp>
#include <attune/status.hpp>

#include "model/config.hpp"

namespace attune::model {

using AttentionGroup = LayerGroup;

struct GroupDTypes {
  DType compute = DType::bf16;  ///< of q and o
  DType kv = DType::bf16;
};

/// The checkpoint's types. Where kernels compute in 16 bits (accelerators, AMX) fp32 becomes bf16.
[[nodiscard]] GroupDTypes auto_dtypes(const ModelConfig& config, const DeviceInfo& device);

/// In order of first layer; a layer of two mixers stands in two groups. MLA is in absorbed form.
[[nodiscard]] std::vector<AttentionGroup> attention_groups(const ModelConfig& config,
                                                           const GroupDTypes& dtypes);

}  // namespace attune::model
