// Verbs issued once and replayed as a CUDA graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>

#include "model/ops.hpp"

namespace attune::model::cuda {

/// What `body` issues on `stream`, recorded. `growths` counts how often memory that verbs share has
/// been moved, which makes a recording stale; `failure` is where verbs, and replays, leave theirs.
[[nodiscard]] Result<std::unique_ptr<Recording>> record_graph(cudaStream_t stream,
                                                              const std::function<Status()>& body,
                                                              const std::int64_t& growths,
                                                              Status& failure);

}  // namespace attune::model::cuda
