// Plans that run at once.
#include <array>
#include <memory>
#include <thread>

#include "conformance/properties.hpp"
#include "conformance/scene.hpp"

namespace attune::conformance {
namespace {

/// Every second request of a case, planned into a workspace of its own.
struct Half {
  std::unique_ptr<Prepared> prepared{};
  StagedWorkspace workspace{};
  std::unique_ptr<Plan> plan{};
  Stream stream{};
};
using Halves = std::array<Half, 2>;

Step half_of(const Case& one, std::size_t which) {
  const Step whole = whole_step(one);
  Step half{.form = whole.form};
  for (std::size_t i = which; i < whole.parts.size(); i += 2) half.parts.push_back(whole.parts[i]);
  return half;
}

Status plan(Scene& scene, const Case& one, Halves& halves) {
  for (std::size_t i = 0; i < halves.size(); ++i) {
    Half& half = halves[i];
    auto prepared = scene.stage->prepare(half_of(one, i));
    if (!prepared.ok()) return prepared.status();
    half.prepared = std::move(*prepared);
    auto workspace = scene.stage->workspace(*scene.backend, half.prepared->batch);
    if (!workspace.ok()) return workspace.status();
    half.workspace = std::move(*workspace);
    // It was filled on the first stream, and is planned in on the half's.
    if (Status s = scene.stage->memory().synchronize(); !s.ok()) return s;
    auto made = scene.backend->plan(half.prepared->batch, half.workspace.view, half.stream);
    if (!made.ok()) return made.status();
    half.plan = std::move(*made);
  }
  return {};
}

Status run(Backend& backend, const Half& half) {
  return backend.run(*half.plan, half.prepared->call, half.stream);
}

/// One after the other, waiting in between.
Status run_alone(Scene& scene, Halves& halves) {
  for (Half& half : halves) {
    if (Status s = run(*scene.backend, half); !s.ok()) return s;
    if (Status s = scene.stage->memory().synchronize(); !s.ok()) return s;
  }
  return {};
}

Status run_together(Scene& scene, Halves& halves, bool by_threads) {
  std::array<Status, 2> done;
  if (by_threads) {
    std::thread other([&] { done[1] = run(*scene.backend, halves[1]); });
    done[0] = run(*scene.backend, halves[0]);
    other.join();
  } else {
    for (std::size_t i = 0; i < halves.size(); ++i) done[i] = run(*scene.backend, halves[i]);
  }
  for (const Status& s : done)
    if (!s.ok()) return s;
  return scene.stage->memory().synchronize();
}

Outcome plans_run_together(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  const Result<Stream> second = stage.memory().second_stream();
  if (!second.ok() && second.status().code() != StatusCode::unsupported)
    return failed(second.status().text());

  Halves halves;
  halves[0].stream = stage.memory().stream();
  halves[1].stream = second.ok() ? *second : stage.memory().stream();
  if (Status s = plan(*scene, one, halves); !s.ok()) return outcome_of(s, one);

  Answer alone = stage.blank_answer();
  constexpr int kRounds = 5;  // the first of them alone
  for (int round = 0; round < kRounds; ++round) {
    for (Half& half : halves)
      if (Status s = stage.blank(*half.prepared); !s.ok()) return failed(s.text());
    if (Status s = stage.memory().synchronize(); !s.ok()) return failed(s.text());
    const Status ran =
        round == 0 ? run_alone(*scene, halves) : run_together(*scene, halves, !second.ok());
    if (!ran.ok()) return outcome_of(ran, one);
    Answer answer = stage.blank_answer();
    for (Half& half : halves) {
      if (Status s = stage.collect(*half.prepared, answer); !s.ok()) return failed(s.text());
      if (Status s = half.workspace.check_guards(); !s.ok()) return failed(s.text());
    }
    if (round == 0) {
      alone = std::move(answer);
      if (Outcome o = against_reference(subject, *scene->problem, alone);
          o.verdict != Verdict::passed)
        return o;
    } else if (Outcome o = compare_repeats(subject, one, *scene->problem, answer, alone);
               o.verdict != Verdict::passed) {
      return o;
    }
  }
  return {};
}

}  // namespace

const Property kPlansRunTogether{"plans_run_together", plans_run_together};

}  // namespace attune::conformance
