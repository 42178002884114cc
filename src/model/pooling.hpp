// How token vectors become one vector of a text, as sentence-transformers folders say it (layer
// model).
#pragma once

#include <cstdint>
#include <string>

#include <attune/status.hpp>

namespace attune::model {

enum class Pooling : std::uint8_t { mean, cls };

struct PoolingConfig {
  Pooling pooling = Pooling::mean;
  std::int64_t max_tokens = 0;  ///< longer texts are cut; 0 = the model's context
};

/// From 1_Pooling/config.json and sentence_bert_config.json in the model's folder; what is absent
/// keeps its default. A pooling that we do not have is refused by name.
Result<PoolingConfig> load_pooling(const std::string& folder);

}  // namespace attune::model
