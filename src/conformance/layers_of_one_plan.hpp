// One plan serves layers of different values, whatever a layer keeps: keys in pages or recurrent
// states (layer conformance).
#pragma once

#include <cstdint>
#include <utility>

#include "base/join.hpp"
#include "conformance/scene.hpp"

namespace attune::conformance {

/// `draw(layer)` draws a layer's values; `bounds(prepared)` sizes the workspace;
/// `collect(stage, prepared, answer)` reads what a run left.
template <class Scene, class Draw, class Bounds, class Collect>
[[nodiscard]] Outcome layers_of_one_plan(const Subject& subject, const Case& one,
                                         Result<Scene> scene, const Draw& draw,
                                         const Bounds& bounds, const Collect& collect) {
  using StageOf = typename decltype(Scene::stage)::element_type;
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Backend& backend = *scene->backend;
  auto first = scene->stage->prepare(whole_step(one));
  if (!first.ok()) return failed(first.status().text());
  auto workspace = scene->stage->workspace(backend.workspace_size(bounds(**first)));
  if (!workspace.ok()) return failed(workspace.status().text());
  const Stream stream = scene->stage->memory().stream();
  auto plan = backend.plan((*first)->batch, workspace->view, stream);
  if (!plan.ok()) return outcome_of(plan.status(), one);
  Outcome worst;
  for (std::uint64_t layer = 0; layer < 3; ++layer) {
    // Each layer has a pool of its own, in which requests lie where the plan's do.
    const auto problem = draw(layer);
    auto stage = StageOf::make(subject, one, problem);
    if (!stage.ok()) return failed(stage.status().text());
    auto prepared = (*stage)->prepare(whole_step(one));
    if (!prepared.ok()) return failed(prepared.status().text());
    (*prepared)->call.layer = static_cast<int>(layer);
    if (Status s = backend.run(**plan, (*prepared)->call, stream); !s.ok())
      return outcome_of(s, one);
    auto answer = (*stage)->blank_answer();
    if (Status s = collect(**stage, **prepared, answer); !s.ok()) return failed(s.text());
    worst = against_reference(subject, problem, answer);
    if (worst.verdict != Verdict::passed) {
      worst.reason = base::join("layer ", layer, ": ", worst.reason);
      return worst;
    }
  }
  if (Status s = workspace->check_guards(); !s.ok()) return failed(s.text());
  return worst;
}

}  // namespace attune::conformance
