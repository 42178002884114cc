// A model opened and ready: files, threads, arithmetic, backends, engine, in the order in which
// they depend on each other (layer runtime).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "device/thread_pool.hpp"
#include "model/checkpoint.hpp"
#include "model/cpu_ops.hpp"
#include "model/model.hpp"
#include "model/weights/converted_weights.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/engine.hpp"
#include "runtime/kv_calibration.hpp"

namespace attune::runtime {

struct SessionOptions {
  DeviceInfo device;
  int num_threads = 1;
  model::CpuWeights weights = model::CpuWeights::as_stored;
  /// Where the weights in their products' form are kept between runs; empty = nowhere.
  std::string converted_weights{};
  bool batch_invariant = false;  ///< of the products; the backends are asked by who makes them
  EngineOptions engine;          ///< context_limit 0 = the model's
  /// What integer KV caches are calibrated with; empty = tokens from all over the vocabulary.
  std::vector<std::int32_t> calibration{};
};

/// Chooses and makes the backends; called before weights are read, so that a refusal costs nothing.
/// With `kv_dtype` it makes the same backends for a cache of that type.
using MakeBackends = std::function<Result<BackendSet>(
    const model::ModelConfig& config, Executor& executor, std::optional<DType> kv_dtype)>;

class Session {
 public:
  static Result<std::unique_ptr<Session>> open(model::Checkpoint checkpoint,
                                               const MakeBackends& make_backends,
                                               const SessionOptions& options);

  [[nodiscard]] const model::ModelConfig& config() const { return checkpoint_.config; }
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] model::Ops& ops() { return *ops_; }
  /// What was chosen and why.
  [[nodiscard]] const Selection& selection() const { return engine_->backends().selection; }
  /// Of the weights as they lie in the files.
  [[nodiscard]] std::int64_t weight_bytes() const { return checkpoint_.weights->total_bytes(); }
  [[nodiscard]] double load_seconds() const { return load_seconds_; }
  /// How the file of converted weights was found; nullopt = none was asked for.
  [[nodiscard]] std::optional<model::ConvertedWeights::State> converted_weights() const {
    return converted_;
  }

 private:
  Session() = default;

  // In order of dependence: destroyed from the last to the first.
  model::Checkpoint checkpoint_;
  std::unique_ptr<device::ThreadPool> threads_;
  std::unique_ptr<model::Ops> ops_;
  std::unique_ptr<model::Model> model_;
  KvScales kv_scales_;
  std::unique_ptr<Engine> engine_;
  double load_seconds_ = 0;
  std::optional<model::ConvertedWeights::State> converted_;
};

/// The most memory this process ever held, in bytes; 0 where the system does not say.
[[nodiscard]] std::int64_t peak_rss_bytes();

}  // namespace attune::runtime
