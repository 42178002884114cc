// ModelConfig → what is asked of attention: one AttentionSpec a group of like layers (layer model).
#pragma once

#include <optional>
#include <vector>

#include <attune/registry.hpp>
#include <attune/status.hpp>

#include "model/config.hpp"

namespace attune::model {

using AttentionGroup = LayerGroup;

struct GroupDTypes {
  DType compute = DType::bf16;  ///< of q and o
  DType kv = DType::bf16;
  std::optional<DType> linear{};  ///< of what linear layers read and write; none: compute
};

/// Keys are kept in the checkpoint's 16-bit type (fp32 becomes bf16) or in the type it asks for;
/// activations are fp32 on a CPU and 16-bit where kernels compute in that (accelerators, AMX).
[[nodiscard]] GroupDTypes auto_dtypes(const ModelConfig& config, const DeviceInfo& device);

/// In order of first layer; a layer of two mixers stands in two groups. MLA is in absorbed form.
[[nodiscard]] std::vector<AttentionGroup> attention_groups(const ModelConfig& config,
                                                           const GroupDTypes& dtypes);

/// A latent layer's attention over keys and values made from its latents: ordinary heads, ragged.
/// `causal` over a step's own keys, not over a cached prefix.
[[nodiscard]] AttentionSpec expanded_spec(const AttentionSpec& latent,
                                          const AttentionConfig& config, bool causal);

}  // namespace attune::model
