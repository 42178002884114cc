// What every property starts from: a backend, a problem, a stage (layer conformance).
#pragma once

#include <memory>

#include "conformance/problem.hpp"
#include "conformance/stage.hpp"

namespace attune::conformance {

struct Scene {
  std::unique_ptr<Problem> problem{};  ///< where the stage knows it, whoever moves the scene
  std::unique_ptr<Stage> stage{};
  std::unique_ptr<Backend> backend{};
};

[[nodiscard]] Result<Scene> set_up(const Subject& subject, const Case& one,
                                   const StageOptions& options = {});

/// Strides are no capability of a row: a backend may refuse them, with its reason, and a machine
/// may be too small. Everything else a case asks for was declared, so a refusal is a broken
/// promise.
[[nodiscard]] Outcome outcome_of(const Status& status, const Case& one);

[[nodiscard]] Outcome run_whole(const Subject& subject, const Case& one,
                                const StageOptions& options, Answer& answer, Problem& problem);

[[nodiscard]] Outcome against_reference(const Subject& subject, const Problem& problem,
                                        const Answer& have);

/// Equal bits where the backend promises them, equal within tolerance elsewhere.
[[nodiscard]] Outcome compare_repeats(const Subject& subject, const Case& one,
                                      const Problem& problem, const Answer& have,
                                      const Answer& want);

}  // namespace attune::conformance
