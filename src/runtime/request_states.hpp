// The recurrent states of requests, slot by slot (layer runtime): who holds one, what it starts
// from, what is kept of it for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <attune/status.hpp>

#include "cache/state_pool.hpp"
#include "model/ops.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/engine_options.hpp"
#include "runtime/request.hpp"
#include "runtime/scheduler.hpp"

namespace attune::runtime {

class RequestStates {
 public:
  /// None for a model whose layers keep none. `ops` outlives the states.
  static Result<std::optional<RequestStates>> make(const model::ModelConfig& config,
                                                   const BackendSet& backends,
                                                   const EngineOptions& options, model::Ops& ops);

  /// A slot for the row's request and, with drafts, a second one to verify them in; zeroed, or
  /// what its cached prefix left.
  Status assign(const ScheduledRow& row);
  /// The request ended, gave way or starts over.
  void release(Request& request);
  /// The states as they are become the request's prefix.state.
  Status keep(Request& request);

  [[nodiscard]] const cache::StatePool& pool() const { return pool_; }

 private:
  explicit RequestStates(cache::StatePool pool) : pool_(std::move(pool)) {}

  cache::StatePool pool_;
};

}  // namespace attune::runtime
