#include "conformance/linear_scene.hpp"

#include <utility>

#include "base/join.hpp"

namespace attune::conformance {

Result<LinearScene> set_up_linear(const Subject& subject, const Case& one,
                                  const LinearStageOptions& options) {
  auto backend = subject.make(context_of(subject, one));
  if (!backend.ok()) return backend.status();
  LinearScene scene{.problem = std::make_unique<LinearProblem>(make_linear_problem(one)),
                    .stage = nullptr,
                    .backend = std::move(*backend)};
  auto stage = LinearStage::make(subject, one, *scene.problem, options);
  if (!stage.ok()) return stage.status();
  scene.stage = std::move(*stage);
  return scene;
}

Outcome against_reference(const Subject& subject, const LinearProblem& problem,
                          const LinearAnswer& have) {
  const auto want = solve(problem, subject);
  if (!want.ok()) return failed(base::join("the reference: ", want.status().text()));
  return compare(problem, have, *want);
}

Status run_whole(LinearScene& scene, const Case& one, LinearAnswer& answer) {
  if (Status s = scene.stage->reset(); !s.ok()) return s;
  answer = scene.stage->blank_answer();
  if (Status s = scene.stage->execute(*scene.backend, whole_step(one), answer); !s.ok()) return s;
  return scene.stage->collect_states(answer);
}

}  // namespace attune::conformance
