// Texts to vectors through an encoder: ragged bidirectional attention, pooling, unit length (layer
// runtime).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <attune/status.hpp>

#include "device/thread_pool.hpp"
#include "model/checkpoint.hpp"
#include "model/encoder.hpp"
#include "model/pooling.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/session.hpp"

namespace attune::runtime {

class Embedder {
 public:
  static Result<std::unique_ptr<Embedder>> open(model::Checkpoint checkpoint,
                                                const model::PoolingConfig& pooling,
                                                const MakeBackends& make_backends,
                                                const SessionOptions& options);

  /// One vector a text, of length hidden_size and norm 1. Texts are token ids with the model's
  /// special tokens around them; those that do not fit the model are refused.
  Result<std::vector<std::vector<float>>> embed(std::span<const std::vector<std::int32_t>> texts);

  /// The longest text the model takes, in tokens.
  [[nodiscard]] std::int64_t max_tokens() const { return max_tokens_; }
  [[nodiscard]] const Selection& selection() const { return backends_.selection; }

 private:
  Embedder() = default;
  Status embed_batch(std::span<const std::vector<std::int32_t>> texts,
                     std::vector<std::vector<float>>& out);

  // In order of dependence: destroyed from the last to the first.
  model::Checkpoint checkpoint_;
  model::PoolingConfig pooling_;
  std::int64_t max_tokens_ = 0;
  std::unique_ptr<device::ThreadPool> threads_;
  std::unique_ptr<model::Ops> ops_;
  std::unique_ptr<model::EncoderModel> model_;
  BackendSet backends_;
  std::vector<model::Buffer> workspaces_;  ///< by group
  std::vector<std::vector<std::byte>> host_workspaces_;
};

}  // namespace attune::runtime
