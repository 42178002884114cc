#include "runtime/session.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "model/device_ops.hpp"

namespace attune::runtime {

namespace {

constexpr std::size_t kCalibrationTokens = 256;

/// The text's first tokens, or without a text every so many-th token of the vocabulary.
std::vector<std::int32_t> calibration_tokens(const SessionOptions& options,
                                             const model::ModelConfig& config) {
  constexpr std::int64_t kStride = 7919;  // a prime: it visits a whole vocabulary
  const auto limit = std::min(kCalibrationTokens, static_cast<std::size_t>(config.context_length));
  std::vector<std::int32_t> tokens = options.calibration;
  if (tokens.empty())
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(limit); ++i)
      tokens.push_back(static_cast<std::int32_t>(i * kStride % config.vocab_size));
  if (tokens.size() > limit) tokens.resize(limit);
  return tokens;
}

Result<std::unique_ptr<model::ConvertedWeights>> open_converted(
    const SessionOptions& options, const model::Checkpoint& checkpoint) {
  const Result<std::uint64_t> source = model::identity_of_files(checkpoint.path);
  if (!source.ok()) return source.status();
  // Each form has records of its own, and a file holds those of one.
  return model::ConvertedWeights::open(options.converted_weights,
                                       *source + static_cast<std::uint64_t>(options.weights));
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(model::Checkpoint checkpoint,
                                               const MakeBackends& make_backends,
                                               const SessionOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<Session> session(new Session);
  session->checkpoint_ = std::move(checkpoint);
  const model::ModelConfig& config = session->checkpoint_.config;
  EngineOptions engine = options.engine;
  if (engine.context_limit == 0) engine.context_limit = config.context_length;
  engine.scheduler.batch_invariant = options.batch_invariant;

  model::CpuOpsOptions ops_options{.weights = options.weights,
                                   .isa = options.device.isa,
                                   .batch_invariant = options.batch_invariant};
  if (Status s = model::check_device_ops(options.device, ops_options); !s.ok()) return s;
  auto threads = device::ThreadPool::for_model(options.num_threads);
  if (!threads.ok()) return threads.status();
  session->threads_ = std::move(*threads);

  Result<BackendSet> backends = make_backends(config, *session->threads_, std::nullopt);
  if (!backends.ok()) return backends.status();

  std::unique_ptr<model::ConvertedWeights> converted;
  if (!options.converted_weights.empty()) {
    Result<std::unique_ptr<model::ConvertedWeights>> opened =
        open_converted(options, session->checkpoint_);
    if (!opened.ok()) return opened.status();
    converted = std::move(*opened);
    session->converted_ = converted->state();
  }
  ops_options.converted = converted.get();
  auto ops = model::make_device_ops(options.device, *session->threads_, ops_options);
  if (!ops.ok()) return ops.status();
  session->ops_ = std::move(*ops);
  const bool calibrate = needs_calibration(*backends);
  const std::vector<std::int32_t> calibration =
      calibrate ? calibration_tokens(options, config) : std::vector<std::int32_t>{};
  align_steps(engine, config, backends->page_size);
  model::ModelOptions bounds = model_options(engine, *backends);
  bounds.max_tokens = std::max(bounds.max_tokens, static_cast<std::int64_t>(calibration.size()));
  auto model = model::Model::make(config, backends->attention, *session->checkpoint_.weights,
                                  *session->ops_, bounds);
  if (!model.ok()) return model.status();
  session->model_ = std::move(*model);
  if (converted != nullptr)
    if (Status s = converted->finish(); !s.ok()) return s;
  if (calibrate) {
    Result<BackendSet> exact = make_backends(config, *session->threads_, DType::f32);
    if (!exact.ok()) return exact.status();
    Result<KvScales> scales =
        calibrate_kv(*session->model_, *session->ops_, std::move(*exact), calibration);
    if (!scales.ok()) return scales.status();
    session->kv_scales_ = std::move(*scales);
  }
  auto made = Engine::make(*session->model_, *session->ops_, std::move(*backends), engine);
  if (!made.ok()) return made.status();
  session->engine_ = std::move(*made);
  session->engine_->use_kv_scales(session->kv_scales_.by_layer());
  session->load_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return session;
}

std::int64_t peak_rss_bytes() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;  // Linux counts KiB
}

}  // namespace attune::runtime
