// Small models as an engine runs them: opened on a CPU in fp32, so that answers can be compared bit
// by bit.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/session.hpp"

namespace attune::runtime::testing_support {

struct SmallSession {
  std::string family = "llama";  ///< a golden model's
  std::string folder{};          ///< instead of it
  std::string backend = "auto";
  int num_threads = 2;
  std::int32_t page_size = 4;
  DType kv_dtype = DType::f32;
  bool batch_invariant = false;
  EngineOptions engine{.context_limit = 200, .pool_tokens = 4096, .scheduler = {}};
};

inline std::string golden(const std::string& family) {
  return std::string(ATTUNE_SOURCE_DIR) + "/tests/golden/models/" + family;
}

inline Result<std::unique_ptr<Session>> try_open(const SmallSession& small) {
  auto checkpoint =
      model::open_checkpoint(small.folder.empty() ? golden(small.family) : small.folder);
  if (!checkpoint.ok()) return checkpoint.status();
  const Result<Registry> registry = Registry::open({});
  if (!registry.ok()) return registry.status();
  SessionOptions options;
  options.device = cpu_device();
  options.num_threads = small.num_threads;
  options.weights = model::CpuWeights::f32;
  options.batch_invariant = small.batch_invariant;
  options.engine = small.engine;
  const auto make = [&](const model::ModelConfig& config, Executor& executor,
                        std::optional<DType> kv_dtype) {
    BackendRequest request;
    request.device = options.device;
    request.selection.prefill = request.selection.decode = small.backend;
    request.selection.page_size = small.page_size;
    request.selection.speculative_topk = small.engine.speculation.enabled() ? 1 : 0;
    request.selection.kv_dtype = kv_dtype ? *kv_dtype : small.kv_dtype;
    request.dtypes = {.compute = DType::f32, .kv = small.kv_dtype};
    request.batch_invariant = small.batch_invariant;
    return make_backends(*registry, config, request, executor);
  };
  return Session::open(std::move(*checkpoint), make, options);
}

/// Null, and a failure, where it cannot be opened.
inline std::unique_ptr<Session> open(const SmallSession& small) {
  auto session = try_open(small);
  EXPECT_TRUE(session.ok()) << session.status().text();
  return session.ok() ? std::move(*session) : nullptr;
}

inline RequestId submit(Engine& engine, const std::vector<std::int32_t>& tokens,
                        const RequestOptions& options) {
  const Result<RequestId> id = engine.submit(tokens, options);
  EXPECT_TRUE(id.ok()) << id.status().text();
  return *id;
}

inline void run(Engine& engine) {
  while (!engine.idle()) {
    const auto events = engine.step();
    ASSERT_TRUE(events.ok()) << events.status().text();
  }
}

}  // namespace attune::runtime::testing_support
