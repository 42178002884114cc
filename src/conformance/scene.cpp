#include "conformance/scene.hpp"

#include <utility>

#include "base/join.hpp"

namespace attune::conformance {
namespace {

bool promises(const Subject& subject, const Case& one, Feature feature) {
  for (const Capability& row : subject.descriptor->capabilities)
    if (row.device == subject.device.kind && row.variants.contains(one.spec.variant) &&
        row.phases.contains(phase_of(one)) && row.features.has(feature))
      return true;
  return false;
}

}  // namespace

Result<Scene> set_up(const Subject& subject, const Case& one, const StageOptions& options) {
  auto backend = subject.make(context_of(subject, one));
  if (!backend.ok()) return backend.status();
  Scene scene{.problem = std::make_unique<Problem>(make_problem(one)),
              .backend = std::move(*backend)};
  auto stage = Stage::make(subject, one, *scene.problem, options);
  if (!stage.ok()) return stage.status();
  scene.stage = std::move(*stage);
  return scene;
}

Outcome outcome_of(const Status& status, const Case& one) {
  if (status.code() == StatusCode::out_of_memory) return skipped(status.text());
  const bool refused = status.code() == StatusCode::unsupported;
  if (refused && one.strided) return skipped(status.text());
  return failed(refused ? base::join("declared, yet refused: ", status.text()) : status.text());
}

Outcome run_whole(const Subject& subject, const Case& one, const StageOptions& options,
                  Answer& answer, Problem& problem) {
  auto scene = set_up(subject, one, options);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  answer = scene->stage->blank_answer();
  if (Status s = scene->stage->execute(*scene->backend, whole_step(one), answer); !s.ok())
    return outcome_of(s, one);
  problem = std::move(*scene->problem);
  return {};
}

Outcome against_reference(const Subject& subject, const Problem& problem, const Answer& have) {
  const auto want = solve(problem, subject);
  if (!want.ok()) return failed(base::join("the reference: ", want.status().text()));
  return compare(problem, have, *want);
}

Outcome compare_repeats(const Subject& subject, const Case& one, const Problem& problem,
                        const Answer& have, const Answer& want) {
  if (promises(subject, one, Feature::deterministic)) return compare_bits(problem, have, want);
  return compare(problem, have, want);
}

}  // namespace attune::conformance
