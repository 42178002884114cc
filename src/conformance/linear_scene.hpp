// How the properties of linear attention begin and end (layer conformance).
#pragma once

#include <memory>

#include "conformance/linear_stage.hpp"
#include "conformance/scene.hpp"

namespace attune::conformance {

/// What every property starts from.
struct LinearScene {
  std::unique_ptr<LinearProblem> problem;
  std::unique_ptr<LinearStage> stage;
  std::unique_ptr<Backend> backend;
};

[[nodiscard]] Result<LinearScene> set_up_linear(const Subject& subject, const Case& one,
                                                const LinearStageOptions& options = {});

/// One whole step from the first states, with the states it leaves.
[[nodiscard]] Status run_whole(LinearScene& scene, const Case& one, LinearAnswer& answer);

[[nodiscard]] Outcome against_reference(const Subject& subject, const LinearProblem& problem,
                                        const LinearAnswer& have);

}  // namespace attune::conformance
