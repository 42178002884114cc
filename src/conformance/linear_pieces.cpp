// Properties of prompts that are computed in pieces.
#include <algorithm>
#include <functional>
#include <vector>

#include "base/join.hpp"
#include "conformance/linear_properties.hpp"
#include "conformance/linear_scene.hpp"

namespace attune::conformance {
namespace {

/// Every request's rows in pieces whose lengths `next` gives, all requests side by side.
Outcome answer_in_pieces(const Case& one, LinearScene& scene, BatchForm form,
                         const std::function<std::int32_t()>& next, LinearAnswer& answer) {
  if (Status s = scene.stage->reset(); !s.ok()) return failed(s.text());
  answer = scene.stage->blank_answer();
  std::vector<std::int32_t> done(one.requests.size(), 0);
  while (true) {
    Step step{.form = form};
    for (std::size_t i = 0; i < one.requests.size(); ++i) {
      const std::int32_t rows = std::min(one.requests[i].qo_len - done[i], next());
      if (rows <= 0) continue;
      step.parts.push_back(
          {.request = static_cast<std::int32_t>(i), .first_row = done[i], .num_rows = rows});
      done[i] += rows;
    }
    if (step.parts.empty()) break;
    if (Status s = scene.stage->execute(*scene.backend, step, answer); !s.ok())
      return outcome_of(s, one);
  }
  const Status collected = scene.stage->collect_states(answer);
  return collected.ok() ? Outcome{} : failed(collected.text());
}

Outcome run_in_pieces(const Subject& subject, const Case& one, LinearScene& scene, BatchForm form,
                      const std::function<std::int32_t()>& next) {
  LinearAnswer answer;
  if (Outcome o = answer_in_pieces(one, scene, form, next, answer); o.verdict != Verdict::passed)
    return o;
  return against_reference(subject, *scene.problem, answer);
}

Outcome cuts_keep_bits(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  LinearAnswer whole;
  if (Status s = run_whole(*scene, one, whole); !s.ok()) return outcome_of(s, one);
  for (const std::int32_t granules : {1, 2, 3}) {
    const auto piece = static_cast<std::int32_t>(granules * kPromptGranule);
    LinearAnswer cut;
    Outcome o = answer_in_pieces(
        one, *scene, one.form, [&] { return piece; }, cut);
    if (o.verdict == Verdict::passed) o = compare_bits(cut, whole);
    if (o.verdict == Verdict::passed) continue;
    o.reason = base::join("pieces of ", piece, ": ", o.reason);
    return o;
  }
  return against_reference(subject, *scene->problem, whole);
}

Outcome resumes_anywhere(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  for (const std::int32_t piece : {2, 9, 33, 64, 65}) {
    Outcome o = run_in_pieces(subject, one, *scene, BatchForm::extend, [&] { return piece; });
    if (o.verdict == Verdict::passed) continue;
    o.reason = base::join("pieces of ", piece, ": ", o.reason);
    return o;
  }
  Random random(one.seed);
  return run_in_pieces(subject, one, *scene, BatchForm::mixed,
                       [&] { return static_cast<std::int32_t>(1 + random.below(20)); });
}

Outcome prefill_equals_decodes(const Subject& subject, const Case& one) {
  auto scene = set_up_linear(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  return run_in_pieces(subject, one, *scene, BatchForm::decode, [] { return 1; });
}

}  // namespace

const Property kResumesAnywhere{"resumes_anywhere", resumes_anywhere};
const Property kLinearCutsKeepBits{"cuts_keep_bits", cuts_keep_bits};
const Property kLinearPrefillEqualsDecodes{"prefill_equals_decodes", prefill_equals_decodes};

}  // namespace attune::conformance
