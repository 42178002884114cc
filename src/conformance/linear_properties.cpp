// Properties of linear attention's answers: what may change without changing them.
#include "conformance/linear_properties.hpp"

#include <algorithm>
#include <memory>
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
  for (int n = 0; n < subject.repeats; n += 2) {
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

}  // namespace

const Property kLinearMatchesReference{"matches_reference", matches_reference};
const Property kSlotsPermuted{"slots_permuted", slots_permuted};
const Property kLinearDeterministic{"deterministic", deterministic};
const Property kDraftsCanBeForgotten{"drafts_can_be_forgotten", drafts_can_be_forgotten};
const Property kLinearNeighboursDoNotMatter{"neighbours_do_not_matter", neighbours_do_not_matter};
const Property kHugeStatePool{"huge_state_pool", huge_state_pool};

}  // namespace attune::conformance
