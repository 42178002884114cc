// Rotary positions in the field's dialects → RopeConfig (layer model).
#pragma once

#include <string_view>

#include "model/config.hpp"
#include "model/config_reader.hpp"

namespace attune::model {

/// Of a head of `head_dim` dims, of layers whose word in rope_parameters is `layer_word` ("" = one
/// rope for all).
///   old dialect: rope_theta, rope_scaling, partial_rotary_factor or rotary_dim beside each other
///   new dialect: rope_parameters, flat or one object a kind of layer
[[nodiscard]] RopeConfig parse_rope(const ConfigReader& text, int head_dim, double default_theta,
                                    std::string_view layer_word = "");

}  // namespace attune::model
