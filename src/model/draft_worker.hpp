// A draft worker: the few layers behind a model that guess its next tokens (multi-token prediction
// heads), as a model of their own (layer model). What a hybrid's draft layers are made of does not
// follow from the target's list of layers, which ends before them: the caller says it, layer by
// layer, and nothing is assumed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

#include "model/config.hpp"

namespace attune::model {

enum class DraftLayer : std::uint8_t {
  full,    ///< as the target's last layer of softmax attention
  linear,  ///< as the target's last layer of linear attention
};

/// "full" or "full,linear": one word a layer, in order.
[[nodiscard]] Result<std::vector<DraftLayer>> parse_draft_layers(std::string_view words);

/// The target's config with these layers in place of its own. Groups, pools and states follow: a
/// worker of full layers has no linear backend and no state slots, one of linear layers no pages.
[[nodiscard]] Result<ModelConfig> draft_worker(const ModelConfig& target,
                                               std::span<const DraftLayer> layers);

}  // namespace attune::model
