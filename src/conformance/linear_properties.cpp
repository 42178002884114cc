#include "conformance/linear_properties.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/join.hpp"
#include "conformance/linear_scene.hpp"

namespace attune::conformance {
namespace {

bool promises(const Subject& subject, const Case& one, Feature feature) {
  return std::any_of(subject.descriptor->capabilities.begin(),
                     subject.descriptor->capabilities.end(), [&](const Capability& row) {
                       return row.device == subject.device.kind &&
                              row.variants.contains(one.spec.variant) &&
                              row.phases.contains(phase_of(one)) && row.features.has(feature);
                     });
}

Outcome matches_reference(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  LinearAnswer answer;
  if (Status s = run_whole(*scene, one, answer); !s.ok()) return outcome_of(s, one);
  return against_reference(subject, *scene->problem, answer);
}

Outcome slots_permuted(const Subject& subject, const Case& one) {
  LinearAnswer answers[2];
  const LinearStageOptions options[2]{{.slot_seed = 1}, {.slot_seed = 2, .garbage = 0x7b}};
  for (int n = 0; n < 2; ++n) {
    auto scene = set_up_linear(subject, one, options[n]);
    if (!scene.ok()) return outcome_of(scene.status(), one);
    if (Status s = run_whole(*scene, one, answers[n]); !s.ok()) return outcome_of(s, one);
  }
  if (promises(subject, one, Feature::deterministic)) return compare_bits(answers[1], answers[0]);
  return compare(make_linear_problem(one), answers[1], answers[0]);
}

Outcome deterministic(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  LinearAnswer first;
  if (Status s = run_whole(*scene, one, first); !s.ok()) return outcome_of(s, one);
  constexpr int kRepeats = 5;
  for (int n = 0; n < kRepeats; ++n) {
    LinearAnswer again;
    if (Status s = run_whole(*scene, one, again); !s.ok()) return outcome_of(s, one);
    if (Outcome o = compare_bits(again, first); o.verdict != Verdict::passed) return o;
  }
  return against_reference(subject, *scene->problem, first);
}

Outcome drafts_can_be_forgotten(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  LinearStage& stage = *scene->stage;
  Step verify = whole_step(one);
  Step again{.form = BatchForm::extend};
  for (std::size_t i = 0; i < verify.parts.size(); ++i) {
    Step::Part& part = verify.parts[i];
    const std::int32_t most[] = {part.num_rows - 1, part.num_rows, part.num_rows / 2};
    part.num_drafts = std::max(most[i % 3], 0);
    again.parts.push_back({.request = part.request,
                           .first_row = part.first_row + part.num_rows - part.num_drafts,
                           .num_rows = part.num_drafts});
  }
  LinearAnswer answer = stage.blank_answer();
  if (Status s = stage.execute(*scene->backend, verify, answer); !s.ok()) return outcome_of(s, one);
  if (Status s = stage.collect_draft_states(verify, answer); !s.ok()) return failed(s.text());
  if (Outcome o = against_reference(subject, *scene->problem, answer); o.verdict != Verdict::passed)
    return o;
  if (Status s = stage.execute(*scene->backend, again, answer); !s.ok()) return outcome_of(s, one);
  if (Status s = stage.collect_states(answer); !s.ok()) return failed(s.text());
  return against_reference(subject, *scene->problem, answer);
}

Outcome plan_serves_layers(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  auto first = scene->stage->prepare(whole_step(one));
  if (!first.ok()) return failed(first.status().text());
  auto workspace = scene->stage->workspace(scene->backend->workspace_size((*first)->bounds));
  if (!workspace.ok()) return failed(workspace.status().text());
  const Stream stream = scene->stage->memory().stream();
  auto plan = scene->backend->plan((*first)->batch, workspace->view, stream);
  if (!plan.ok()) return outcome_of(plan.status(), one);
  for (std::uint64_t layer = 0; layer < 3; ++layer) {
    // Each layer has pools and values of its own, on the same slots.
    const LinearProblem problem = make_linear_problem(one, layer);
    auto stage = LinearStage::make(subject, one, problem);
    if (!stage.ok()) return failed(stage.status().text());
    auto prepared = (*stage)->prepare(whole_step(one));
    if (!prepared.ok()) return failed(prepared.status().text());
    (*prepared)->call.layer = static_cast<int>(layer);
    if (Status s = scene->backend->run(**plan, (*prepared)->call, stream); !s.ok())
      return outcome_of(s, one);
    LinearAnswer answer = (*stage)->blank_answer();
    if (Status s = (*stage)->collect(**prepared, answer); !s.ok()) return failed(s.text());
    if (Status s = (*stage)->collect_states(answer); !s.ok()) return failed(s.text());
    Outcome o = against_reference(subject, problem, answer);
    if (o.verdict != Verdict::passed) {
      o.reason = base::join("layer ", layer, ": ", o.reason);
      return o;
    }
  }
  const Status intact = workspace->check_guards();
  return intact.ok() ? Outcome{} : failed(intact.text());
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
  return matches_reference(subject, one);
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

Outcome neighbours_do_not_matter(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  LinearAnswer together;
  if (Status s = run_whole(*scene, one, together); !s.ok()) return outcome_of(s, one);
  if (Status s = scene->stage->reset(); !s.ok()) return failed(s.text());
  LinearAnswer alone = scene->stage->blank_answer();
  for (const Step::Part& part : whole_step(one).parts)
    if (Status s =
            scene->stage->execute(*scene->backend, {.form = one.form, .parts = {part}}, alone);
        !s.ok())
      return outcome_of(s, one);
  if (Status s = scene->stage->collect_states(alone); !s.ok()) return failed(s.text());
  if (one.exercises.has(Feature::batch_invariant)) return compare_bits(alone, together);
  return compare(*scene->problem, alone, together);
}

/// One request in the last of three slots, so far apart that 32 bits do not reach it.
Outcome huge_state_pool(const Subject& subject, const Case& one) {
  constexpr std::int64_t kSlots = 3;
  constexpr std::int64_t kSlotElements = (std::int64_t{1} << 30) + (std::int64_t{1} << 20);
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  const LinearProblem& problem = *scene->problem;
  DeviceMemory& memory = scene->stage->memory();
  auto prepared = scene->stage->prepare(whole_step(one));
  if (!prepared.ok()) return failed(prepared.status().text());
  LinearPrepared& p = **prepared;

  std::vector<std::shared_ptr<void>> pools;
  const auto spread = [&](TensorView& view, const void* row, std::int64_t width) -> Status {
    if (width == 0) return {};
    const auto elements = static_cast<std::size_t>((kSlots - 1) * kSlotElements + width);
    const auto pool = memory.allocate_sparse(elements * size_of(view.dtype));
    if (!pool.ok()) return pool.status();
    pools.emplace_back(*pool, [&memory](void* data) { memory.release(data); });
    view.data = *pool;
    view.shape[0] = kSlots;
    view.stride[0] = kSlotElements;
    const std::size_t at = static_cast<std::size_t>((kSlots - 1) * kSlotElements);
    return memory.copy_in(static_cast<char*>(view.data) + at * size_of(view.dtype), row,
                          static_cast<std::size_t>(width) * size_of(view.dtype));
  };
  if (Status s = spread(p.linear.state, problem.state.data(), problem.state_width()); !s.ok())
    return outcome_of(s, one);
  if (Status s = spread(p.linear.conv_state, problem.conv_state.data(), problem.conv_state_width());
      !s.ok())
    return outcome_of(s, one);
  p.state_indices = {static_cast<std::int32_t>(kSlots - 1)};
  p.batch.state_indices = p.state_indices;

  auto workspace = scene->stage->workspace(scene->backend->workspace_size(p.bounds));
  if (!workspace.ok()) return failed(workspace.status().text());
  auto plan = scene->backend->plan(p.batch, workspace->view, memory.stream());
  if (!plan.ok()) return outcome_of(plan.status(), one);
  // Twice: the second run reads what the first has written that far away.
  LinearAnswer first = scene->stage->blank_answer();
  LinearAnswer second = first;
  for (LinearAnswer* answer : {&first, &second}) {
    if (Status s = scene->backend->run(**plan, p.call, memory.stream()); !s.ok())
      return outcome_of(s, one);
    if (Status s = scene->stage->collect(p, *answer); !s.ok()) return failed(s.text());
  }

  // The oracle takes the same rows twice, one after the other.
  LinearProblem twice = problem;
  twice.requests[0].qo_len *= 2;
  twice.first_token[1] *= 2;
  for (std::vector<char>* rows : {&twice.input, &twice.gate, &twice.beta}) {
    const std::vector<char> once = *rows;
    rows->insert(rows->end(), once.begin(), once.end());
  }
  auto want = solve(twice, subject);
  if (!want.ok()) return failed(base::join("the reference: ", want.status().text()));
  LinearAnswer have{.o = std::move(first.o)};
  have.o.insert(have.o.end(), second.o.begin(), second.o.end());
  want->state.clear();
  want->conv_state.clear();
  return compare(problem, have, *want);
}

Outcome refuses_hostile_input(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  LinearStage& stage = *scene->stage;
  auto prepared = stage.prepare(whole_step(one));
  if (!prepared.ok()) return failed(prepared.status().text());
  auto workspace = stage.workspace(scene->backend->workspace_size((*prepared)->bounds));
  if (!workspace.ok()) return failed(workspace.status().text());
  const Stream stream = stage.memory().stream();
  const BatchView& good = (*prepared)->batch;

  struct Hostile {
    std::string_view what;
    std::function<void(std::vector<std::int32_t>& indptr, std::vector<std::int32_t>& slots)> change;
  };
  const Hostile batches[] = {
      {"one slot for two requests", [](auto&, auto& slots) { slots[1] = slots[0]; }},
      {"fewer slots than requests", [](auto&, auto& slots) { slots.pop_back(); }},
      {"no slots", [](auto&, auto& slots) { slots.clear(); }},
      {"qo_indptr that falls", [](auto& indptr, auto&) { indptr[1] = indptr[2] + 1; }},
      {"qo_indptr that does not start at 0", [](auto& indptr, auto&) { indptr[0] = 1; }}};
  for (const Hostile& hostile : batches) {
    std::vector<std::int32_t> indptr(good.qo_indptr.begin(), good.qo_indptr.end());
    std::vector<std::int32_t> slots(good.state_indices.begin(), good.state_indices.end());
    hostile.change(indptr, slots);
    BatchView bad = good;
    bad.qo_indptr = indptr;
    bad.state_indices = slots;
    if (scene->backend->plan(bad, workspace->view, stream).ok())
      return failed(base::join("accepted: ", hostile.what));
  }

  const bool convolves = one.spec.variant != Variant::lightning;
  struct BadCall {
    std::string_view what;
    std::function<void(LayerCall&, LinearCall&)> change;
    bool applies = true;
  };
  const bool recurs = one.spec.variant != Variant::short_conv;
  const BadCall calls[] = {
      {"no LinearCall", [](LayerCall& call, LinearCall&) { call.linear = nullptr; }},
      {"o of one row too few", [](LayerCall& call, LinearCall&) { --call.o.shape[0]; }},
      {"o of another dtype", [](LayerCall& call, LinearCall&) { call.o.dtype = DType::f64; }},
      {"no convolution weights", [](LayerCall&, LinearCall& l) { l.conv_weight = nullptr; },
       convolves},
      {"a conv_state of too few slots",
       [](LayerCall&, LinearCall& l) { l.conv_state.shape[0] = 0; }, convolves},
      {"a state of too few slots", [](LayerCall&, LinearCall& l) { l.state.shape[0] = 0; }, recurs},
      {"a state in bf16", [](LayerCall&, LinearCall& l) { l.state.dtype = DType::bf16; }, recurs}};
  auto plan = scene->backend->plan(good, workspace->view, stream);
  if (!plan.ok()) return outcome_of(plan.status(), one);
  for (const BadCall& bad : calls) {
    if (!bad.applies) continue;
    LinearCall linear = (*prepared)->linear;
    LayerCall call = (*prepared)->call;
    call.linear = &linear;
    bad.change(call, linear);
    if (scene->backend->run(**plan, call, stream).ok())
      return failed(base::join("accepted: ", bad.what));
  }
  // Nothing was written meanwhile: the good call still finds the first states.
  if (Status s = scene->backend->run(**plan, (*prepared)->call, stream); !s.ok())
    return outcome_of(s, one);
  LinearAnswer answer = stage.blank_answer();
  if (Status s = stage.collect(**prepared, answer); !s.ok()) return failed(s.text());
  if (Status s = stage.collect_states(answer); !s.ok()) return failed(s.text());
  return against_reference(subject, *scene->problem, answer);
}

}  // namespace

const Property kLinearMatchesReference{"matches_reference", matches_reference};
const Property kSlotsPermuted{"slots_permuted", slots_permuted};
const Property kLinearDeterministic{"deterministic", deterministic};
const Property kDraftsCanBeForgotten{"drafts_can_be_forgotten", drafts_can_be_forgotten};
const Property kLinearPlanServesLayers{"plan_serves_layers", plan_serves_layers};
const Property kLinearRefreshEqualsFresh{"refresh_equals_fresh", refresh_equals_fresh};
const Property kLinearWorkspaceExact{"workspace_exact", workspace_exact};
const Property kLinearBoundsCoverSmallerBatches{"bounds_cover_smaller_batches",
                                                bounds_cover_smaller_batches};
const Property kLinearNeighboursDoNotMatter{"neighbours_do_not_matter", neighbours_do_not_matter};
const Property kHugeStatePool{"huge_state_pool", huge_state_pool};
const Property kLinearRefusesHostileInput{"refuses_hostile_input", refuses_hostile_input};
const Property kLinearGraphReplay{"graph_replay", graph_replay};

}  // namespace attune::conformance
