// A GGUF file as a WeightStore (layer model).
#pragma once

#include <memory>
#include <string>

#include <attune/status.hpp>

#include "model/weights/gguf.hpp"
#include "model/weights/named_weights.hpp"

namespace attune::model {

class GgufWeights final : public NamedWeights {
 public:
  explicit GgufWeights(GgufFile head) : head_(std::move(head)) {}
  /// Configuration and vocabulary.
  [[nodiscard]] const GgufFile& head() const { return head_; }

 private:
  GgufFile head_;
};

/// Rows of q and k lie as the file has them: files of llama-like architectures hold them permuted
/// for interleaved rotation, which gguf_config.hpp declares, so nothing is copied.
Result<std::unique_ptr<GgufWeights>> open_gguf(const std::string& path);

}  // namespace attune::model
