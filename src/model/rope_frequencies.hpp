// The inverse frequencies of rotary positions, with every scaling of the field (layer model).
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.hpp"

namespace attune::model {

struct RopeFrequencies {
  std::vector<float> inv_freq;    ///< [rotary_dim / 2]; angle of pair i = position * inv_freq[i]
  float attention_factor = 1.0f;  ///< on cos and sin (YaRN's and LongRoPE's temperature)
};

/// Of a sequence of `kv_len` tokens: dynamic and longrope change their frequencies once it exceeds
/// the original context; the other types do not look at it. `context_length` is
/// ModelConfig::context_length.
[[nodiscard]] RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t context_length,
                                               std::int64_t kv_len);

/// Whether the frequencies of `rope` change with kv_len, so that they must be made again as a
/// sequence grows.
[[nodiscard]] bool depends_on_length(const RopeConfig& rope);

}  // namespace attune::model
