// Properties of the contract: plans, workspaces and caches.
#include <memory>
#include <utility>
#include <vector>

#include <attune/validate.hpp>

#include "base/join.hpp"
#include "conformance/layers_of_one_plan.hpp"
#include "conformance/properties.hpp"
#include "conformance/scene.hpp"

namespace attune::conformance {
namespace {

constexpr std::int64_t kHugeElements = (std::int64_t{1} << 32) + (std::int64_t{1} << 24);

Outcome plan_serves_layers(const Subject& subject, const Case& one) {
  return layers_of_one_plan(
      subject, one, set_up(subject, one),
      [&](std::uint64_t layer) { return make_problem(one, layer); },
      [](const Prepared& p) { return attention::bounds_of(p.batch); },
      [](Stage& stage, const Prepared& p, Answer& answer) { return stage.collect(p, answer); });
}

Outcome workspace_exact(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  Answer answer = stage.blank_answer();
  if (Status s = stage.execute(*scene->backend, whole_step(one), answer); !s.ok())
    return outcome_of(s, one);
  auto prepared = stage.prepare(whole_step(one));
  if (!prepared.ok()) return failed(prepared.status().text());
  auto enough = stage.workspace(*scene->backend, (*prepared)->batch);
  if (!enough.ok()) return failed(enough.status().text());
  if (enough->view.device_bytes > 0) {
    auto less = stage.workspace(*scene->backend, (*prepared)->batch, 1);
    if (!less.ok()) return failed(less.status().text());
    const auto plan = scene->backend->plan((*prepared)->batch, less->view, stage.memory().stream());
    if (plan.ok())
      return failed(
          base::join("a workspace one byte short of ", enough->view.device_bytes, " was accepted"));
    if (Status s = less->check_guards(); !s.ok()) return failed(s.text());
  }
  if (enough->view.host_bytes > 0) {
    Workspace less = enough->view;
    --less.host_bytes;
    if (scene->backend->plan((*prepared)->batch, less, stage.memory().stream()).ok())
      return failed("a host workspace one byte short was accepted");
  }
  return against_reference(subject, *scene->problem, answer);
}

Outcome append_then_run(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one, {.empty_cache = true});
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  const Stream stream = stage.memory().stream();
  // The new keys' dtype holds every stored value: the output's own where it does, else fp32.
  const AttentionSpec& spec = one.spec;
  const bool exact = !spec.kv_scales && (spec.kv_dtype == spec.o_dtype ||
                                         size_of(spec.kv_dtype) < size_of(spec.o_dtype));
  const DType dtype = exact ? spec.o_dtype : DType::f32;
  const Step step = whole_step(one);
  const auto before = stage.pool_bytes();
  if (!before.ok()) return failed(before.status().text());
  auto appended = stage.prepare_append(step, dtype);
  if (!appended.ok()) return failed(appended.status().text());
  if (Status s = scene->backend->append_kv((*appended)->call, stream); !s.ok())
    return outcome_of(s, one);
  if (Status s = stage.memory().synchronize(); !s.ok()) return failed(s.text());
  const auto after = stage.pool_bytes();
  if (!after.ok()) return failed(after.status().text());

  // Where keys went, the bytes are the problem's own; everywhere else nothing changed.
  const bool slice = scene->problem->v.empty();
  std::size_t written = 0;
  for (std::size_t i = 0; i < one.requests.size(); ++i) {
    for (std::int32_t j = 0; j < one.requests[i].kv_len; ++j) {
      for (const bool values : {false, true}) {
        if (values && slice) continue;
        const auto request = static_cast<std::int32_t>(i);
        const auto stored = stage.stored_rows(request, j, values);
        if (!stored.ok()) return failed(stored.status().text());
        const std::vector<char> want = stage.wanted_rows(request, j, values);
        if (*stored != want)
          return failed(base::join("request ", i, ", token ", j, ": the stored ",
                                   values ? "value" : "key", " is not what was appended"));
        written += want.size();
      }
    }
  }
  std::size_t changed = 0;
  for (std::size_t b = 0; b < before->size(); ++b) changed += (*before)[b] != (*after)[b] ? 1 : 0;
  if (changed > written)
    return failed(base::join("append_kv changed ", changed, " bytes, its keys are ", written));
  if (Status s = stage.check_vector_pools(StageOptions{}.garbage); !s.ok()) return failed(s.text());
  Answer answer = stage.blank_answer();
  if (Status s = stage.execute(*scene->backend, step, answer); !s.ok()) return outcome_of(s, one);
  return against_reference(subject, *scene->problem, answer);
}

Outcome huge_pool(const Subject& subject, const Case& one) {
  Answer answer;
  Problem problem;
  if (Outcome o = run_whole(subject, one, {.huge_elements = kHugeElements}, answer, problem);
      o.verdict != Verdict::passed)
    return o;
  return against_reference(subject, problem, answer);
}

/// Writers wrap as readers do: appended beyond 2^31 and 2^32 elements, then read.
Outcome huge_pool_append(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one, {.empty_cache = true, .huge_elements = kHugeElements});
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  const Step step = whole_step(one);
  auto appended = stage.prepare_append(step, one.spec.o_dtype);
  if (!appended.ok()) return failed(appended.status().text());
  if (Status s = scene->backend->append_kv((*appended)->call, stage.memory().stream()); !s.ok())
    return outcome_of(s, one);
  Answer answer = stage.blank_answer();
  if (Status s = stage.execute(*scene->backend, step, answer); !s.ok()) return outcome_of(s, one);
  return against_reference(subject, *scene->problem, answer);
}

/// A workspace sized once for the largest batch serves every smaller one; and plans of decodes that
/// took turns in it are whole again once they are refreshed (an engine keeps one a batch size).
Outcome bounds_cover_smaller_batches(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  const Stream stream = stage.memory().stream();
  const Step whole = whole_step(one);
  auto largest = stage.prepare(whole);
  if (!largest.ok()) return failed(largest.status().text());
  auto workspace = stage.workspace(*scene->backend, (*largest)->batch);
  if (!workspace.ok()) return failed(workspace.status().text());
  Answer answer = stage.blank_answer();
  struct Planned {
    std::unique_ptr<Prepared> prepared;
    PlanHandle plan;
  };
  std::vector<Planned> kept;
  const auto run = [&](const Planned& now) -> Status {
    if (Status s = scene->backend->run(*now.plan, now.prepared->call, stream); !s.ok()) return s;
    return stage.collect(*now.prepared, answer);
  };
  // Every run of neighbouring requests, the single ones last, so that all rows are written by them.
  for (std::size_t count = whole.parts.size(); count > 0; --count) {
    for (std::size_t first = 0; first + count <= whole.parts.size(); ++first) {
      const auto begin = whole.parts.begin() + static_cast<std::ptrdiff_t>(first);
      const Step step{.form = one.form,
                      .parts = {begin, begin + static_cast<std::ptrdiff_t>(count)}};
      auto prepared = stage.prepare(step);
      if (!prepared.ok()) return failed(prepared.status().text());
      auto plan = scene->backend->plan((*prepared)->batch, workspace->view, stream);
      if (!plan.ok())
        return failed(base::join("requests ", first, " … ", first + count - 1,
                                 " in a workspace sized for more: ", plan.status().text()));
      kept.push_back({std::move(*prepared), std::move(*plan)});
      if (Status s = run(kept.back()); !s.ok()) return outcome_of(s, one);
    }
  }
  if (Status s = workspace->check_guards(); !s.ok()) return failed(s.text());
  Outcome outcome = against_reference(subject, *scene->problem, answer);
  if (one.form != BatchForm::decode || outcome.verdict != Verdict::passed) return outcome;
  answer = stage.blank_answer();
  for (const Planned& now : kept) {
    if (Status s = stage.blank(*now.prepared); !s.ok()) return failed(s.text());
    if (Status s = scene->backend->refresh(*now.plan, now.prepared->batch, stream); !s.ok())
      return outcome_of(s, one);
    if (Status s = run(now); !s.ok()) return outcome_of(s, one);
  }
  if (Status s = workspace->check_guards(); !s.ok()) return failed(s.text());
  outcome = against_reference(subject, *scene->problem, answer);
  if (outcome.verdict == Verdict::failed)
    outcome.reason = base::join("refreshed after others in its workspace: ", outcome.reason);
  return outcome;
}

}  // namespace

const Property kPlanServesLayers{"plan_serves_layers", plan_serves_layers};
const Property kWorkspaceExact{"workspace_exact", workspace_exact};
const Property kAppendThenRun{"append_then_run", append_then_run};
const Property kHugePool{"huge_pool", huge_pool};
const Property kHugePoolAppend{"huge_pool_append", huge_pool_append};
const Property kBoundsCoverSmallerBatches{"bounds_cover_smaller_batches",
                                          bounds_cover_smaller_batches};

}  // namespace attune::conformance
