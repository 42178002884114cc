#include "runtime/session.hpp"

#include <sys/resource.h>

#include <chrono>
#include <utility>

#include "model/device_ops.hpp"

namespace attune::runtime {

Result<std::unique_ptr<Session>> Session::open(model::Checkpoint checkpoint,
                                               const MakeBackends& make_backends,
                                               const SessionOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<Session> session(new Session);
  session->checkpoint_ = std::move(checkpoint);
  const model::ModelConfig& config = session->checkpoint_.config;
  EngineOptions engine = options.engine;
  if (engine.context_limit == 0) engine.context_limit = config.context_length;

  auto threads = device::ThreadPool::make({.num_threads = options.num_threads});
  if (!threads.ok()) return threads.status();
  session->threads_ = std::move(*threads);

  Result<BackendSet> backends = make_backends(config, *session->threads_);
  if (!backends.ok()) return backends.status();

  auto ops = model::make_device_ops(options.device, *session->threads_,
                                    {.weights = options.weights,
                                     .isa = options.device.isa,
                                     .batch_invariant = options.batch_invariant});
  if (!ops.ok()) return ops.status();
  session->ops_ = std::move(*ops);
  auto model = model::Model::make(config, backends->attention, *session->checkpoint_.weights,
                                  *session->ops_, model_options(engine));
  if (!model.ok()) return model.status();
  session->model_ = std::move(*model);
  auto made = Engine::make(*session->model_, *session->ops_, std::move(*backends), engine);
  if (!made.ok()) return made.status();
  session->engine_ = std::move(*made);
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
