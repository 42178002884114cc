// What a request keeps on the device: keys and values a token, states a request (layer model).
// Sizes come from the page-layout routine that the cache itself uses.
#pragma once

#include <cstdint>
#include <optional>

#include <attune/registry.hpp>

#include "model/config.hpp"

namespace attune::model {

struct CacheBytes {
  double per_token = 0.0;           ///< of every token that is kept, over all layers of the group
  std::int64_t bounded_tokens = 0;  ///< tokens kept at most (a window, a chunk); 0 = all of them
  std::int64_t per_request = 0;     ///< recurrent states

  /// Of one request of `tokens` tokens.
  [[nodiscard]] std::int64_t of_request(std::int64_t tokens) const;
};

/// Of one group as it was selected: its layers, KV type, page size and layout.
[[nodiscard]] CacheBytes cache_bytes(const ModelConfig& config, const GroupSelection& group);

}  // namespace attune::model
