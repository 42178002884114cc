// Properties of linear attention's plans and workspaces: sized once, shared by layers, refreshed.
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/join.hpp"
#include "conformance/layers_of_one_plan.hpp"
#include "conformance/linear_properties.hpp"
#include "conformance/linear_scene.hpp"

namespace attune::conformance {
namespace {

Outcome plan_serves_layers(const Subject& subject, const Case& one) {
  return layers_of_one_plan(
      subject, one, set_up_linear(subject, one),
      [&](std::uint64_t layer) { return make_linear_problem(one, layer); },
      [](const LinearPrepared& p) { return p.bounds; },
      [](LinearStage& stage, const LinearPrepared& p, LinearAnswer& answer) {
        const Status s = stage.collect(p, answer);
        return s.ok() ? stage.collect_states(answer) : s;
      });
}

Outcome workspace_exact(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  auto prepared = scene->stage->prepare(whole_step(one));
  if (!prepared.ok()) return failed(prepared.status().text());
  const WorkspaceSize size = scene->backend->workspace_size((*prepared)->bounds);
  const Stream stream = scene->stage->memory().stream();
  if (size.device_bytes > 0) {
    auto less = scene->stage->workspace(size, 1);
    if (!less.ok()) return failed(less.status().text());
    if (scene->backend->plan((*prepared)->batch, less->view, stream).ok())
      return failed(
          base::join("a workspace one byte short of ", size.device_bytes, " was accepted"));
    if (Status s = less->check_guards(); !s.ok()) return failed(s.text());
  }
  if (size.host_bytes > 0) {
    auto enough = scene->stage->workspace(size);
    if (!enough.ok()) return failed(enough.status().text());
    --enough->view.host_bytes;
    if (scene->backend->plan((*prepared)->batch, enough->view, stream).ok())
      return failed("a host workspace one byte short was accepted");
  }
  return kLinearMatchesReference.check(subject, one);
}

Outcome bounds_cover_smaller_batches(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  auto whole = scene->stage->prepare(whole_step(one));
  if (!whole.ok()) return failed(whole.status().text());
  const WorkspaceSize size = scene->backend->workspace_size((*whole)->bounds);
  // Every leading part of the batch, each from the first states.
  for (std::size_t n = 0; n <= one.requests.size(); ++n) {
    Case part = one;
    part.requests.resize(n);
    const LinearProblem problem = make_linear_problem(part);
    auto stage = LinearStage::make(subject, part, problem);
    if (!stage.ok()) return failed(stage.status().text());
    auto prepared = (*stage)->prepare(whole_step(part));
    if (!prepared.ok()) return failed(prepared.status().text());
    auto workspace = (*stage)->workspace(size);
    if (!workspace.ok()) return failed(workspace.status().text());
    const Stream stream = (*stage)->memory().stream();
    auto plan = scene->backend->plan((*prepared)->batch, workspace->view, stream);
    if (!plan.ok()) return outcome_of(plan.status(), one);
    if (Status s = scene->backend->run(**plan, (*prepared)->call, stream); !s.ok())
      return outcome_of(s, one);
    LinearAnswer answer = (*stage)->blank_answer();
    if (Status s = (*stage)->collect(**prepared, answer); !s.ok()) return failed(s.text());
    if (Status s = (*stage)->collect_states(answer); !s.ok()) return failed(s.text());
    if (Status s = workspace->check_guards(); !s.ok()) return failed(s.text());
    if (Outcome o = against_reference(subject, problem, answer); o.verdict != Verdict::passed)
      return o;
  }
  return {};
}

/// Row `row` of every request, as one decode.
Step rows_at(const Case& one, std::int32_t row) {
  Step step{.form = BatchForm::decode};
  for (std::size_t i = 0; i < one.requests.size(); ++i)
    step.parts.push_back(
        {.request = static_cast<std::int32_t>(i), .first_row = row, .num_rows = 1});
  return step;
}

/// Decodes row after row with one plan. The workspace must not outlive the stage.
struct Decoding {
  LinearScene scene;
  std::unique_ptr<LinearPrepared> prepared;
  StagedWorkspace workspace;
  PlanHandle plan;
};

Result<Decoding> begin_decoding(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return scene.status();
  Decoding d{std::move(*scene), nullptr, {}, nullptr};
  auto prepared = d.scene.stage->prepare(rows_at(one, 0));
  if (!prepared.ok()) return prepared.status();
  d.prepared = std::move(*prepared);
  auto workspace = d.scene.stage->workspace(d.scene.backend->workspace_size(d.prepared->bounds));
  if (!workspace.ok()) return workspace.status();
  d.workspace = std::move(*workspace);
  auto plan =
      d.scene.backend->plan(d.prepared->batch, d.workspace.view, d.scene.stage->memory().stream());
  if (!plan.ok()) return plan.status();
  d.plan = std::move(*plan);
  return d;
}

/// Every row in turn, by a refreshed plan and `run`; then the whole is held to the reference.
Outcome decode_all(const Subject& subject, const Case& one, Decoding& d,
                   const std::function<Status()>& run) {
  LinearStage& stage = *d.scene.stage;
  if (Status s = stage.reset(); !s.ok()) return failed(s.text());
  LinearAnswer answer = stage.blank_answer();
  for (std::int32_t row = 0; row < one.requests[0].qo_len; ++row) {
    if (Status s = stage.refill(*d.prepared, rows_at(one, row)); !s.ok()) return failed(s.text());
    if (Status s = d.scene.backend->refresh(*d.plan, d.prepared->batch, stage.memory().stream());
        !s.ok())
      return outcome_of(s, one);
    if (Status s = run(); !s.ok()) return outcome_of(s, one);
    if (Status s = stage.collect(*d.prepared, answer); !s.ok()) return failed(s.text());
  }
  if (Status s = d.workspace.check_guards(); !s.ok()) return failed(s.text());
  if (Status s = stage.collect_states(answer); !s.ok()) return failed(s.text());
  return against_reference(subject, *d.scene.problem, answer);
}

Outcome refresh_equals_fresh(const Subject& subject, const Case& one) {
  auto d = begin_decoding(subject, one);
  if (!d.ok()) return outcome_of(d.status(), one);
  return decode_all(subject, one, *d, [&] {
    return d->scene.backend->run(*d->plan, d->prepared->call, d->scene.stage->memory().stream());
  });
}

Outcome graph_replay(const Subject& subject, const Case& one) {
  auto d = begin_decoding(subject, one);
  if (!d.ok()) return outcome_of(d.status(), one);
  auto recording = d->scene.stage->memory().record(
      [&](Stream stream) { return d->scene.backend->run(*d->plan, d->prepared->call, stream); });
  if (!recording.ok()) {
    const std::string why = recording.status().text();
    return recording.status().code() == StatusCode::unsupported ? skipped(why) : failed(why);
  }
  if (Outcome o = decode_all(subject, one, *d, [&] { return (*recording)->replay(); });
      o.verdict != Verdict::passed)
    return o;
  // A batch of fewer rows than were recorded.
  Step step = rows_at(one, 0);
  step.parts.pop_back();
  auto fewer = d->scene.stage->prepare(step);
  if (!fewer.ok()) return failed(fewer.status().text());
  if (d->scene.backend->refresh(*d->plan, (*fewer)->batch, d->scene.stage->memory().stream()).ok())
    return failed("refresh accepted a batch that the recorded run does not fit");
  return {};
}

}  // namespace

const Property kLinearPlanServesLayers{"plan_serves_layers", plan_serves_layers};
const Property kLinearRefreshEqualsFresh{"refresh_equals_fresh", refresh_equals_fresh};
const Property kLinearWorkspaceExact{"workspace_exact", workspace_exact};
const Property kLinearBoundsCoverSmallerBatches{"bounds_cover_smaller_batches",
                                                bounds_cover_smaller_batches};
const Property kLinearGraphReplay{"graph_replay", graph_replay};

}  // namespace attune::conformance
