// Properties of answers: what may change without changing them.
#include "conformance/properties.hpp"

#include <algorithm>
#include <memory>

#include "attention/lse.hpp"
#include "base/join.hpp"
#include "conformance/scene.hpp"

namespace attune::conformance {
namespace {

Outcome matches_reference(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  const auto before = stage.pool_bytes();
  if (!before.ok()) return failed(before.status().text());
  Answer answer = stage.blank_answer();
  if (Status s = stage.execute(*scene->backend, whole_step(one), answer); !s.ok())
    return outcome_of(s, one);
  const auto after = stage.pool_bytes();
  if (!after.ok()) return failed(after.status().text());
  if (*before != *after) return failed("run wrote into the cache");
  return against_reference(subject, *scene->problem, answer);
}

Outcome pages_permuted(const Subject& subject, const Case& one) {
  // Other pages; then garbage that is not NaN but huge (0x7b: 2^14 and more in every format).
  Answer first;
  Answer other;
  Problem problem;
  if (Outcome o = run_whole(subject, one, {.page_seed = 1}, first, problem);
      o.verdict != Verdict::passed)
    return o;
  if (Outcome o = run_whole(subject, one, {.page_seed = 2, .garbage = 0x7b}, other, problem);
      o.verdict != Verdict::passed)
    return o;
  return compare_repeats(subject, one, problem, other, first);
}

Outcome deterministic(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  Answer first = stage.blank_answer();
  if (Status s = stage.execute(*scene->backend, whole_step(one), first); !s.ok())
    return outcome_of(s, one);
  for (int n = 0; n < subject.repeats; ++n) {
    Answer again = stage.blank_answer();
    if (Status s = stage.execute(*scene->backend, whole_step(one), again); !s.ok())
      return outcome_of(s, one);
    if (Outcome o = compare_bits(*scene->problem, again, first); o.verdict != Verdict::passed)
      return o;
  }
  return against_reference(subject, *scene->problem, first);
}

/// Runs every request's rows in pieces of `piece`, all requests side by side.
Outcome answer_in_pieces(const Case& one, Scene& scene, std::int32_t piece, BatchForm form,
                         Answer& answer) {
  answer = scene.stage->blank_answer();
  for (std::int32_t done = 0;; done += piece) {
    Step step{.form = form};
    for (std::size_t i = 0; i < one.requests.size(); ++i) {
      const std::int32_t left = one.requests[i].qo_len - done;
      if (left <= 0) continue;
      step.parts.push_back({.request = static_cast<std::int32_t>(i),
                            .first_row = done,
                            .num_rows = std::min(piece, left)});
    }
    if (step.parts.empty()) return {};
    if (Status s = scene.stage->execute(*scene.backend, step, answer); !s.ok())
      return outcome_of(s, one);
  }
}

Outcome run_in_pieces(const Subject& subject, const Case& one, std::int32_t piece, BatchForm form) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Answer answer;
  if (Outcome o = answer_in_pieces(one, *scene, piece, form, answer); o.verdict != Verdict::passed)
    return o;
  return against_reference(subject, *scene->problem, answer);
}

Outcome cuts_keep_bits(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Answer whole;
  if (Outcome o = answer_in_pieces(one, *scene, 1 << 20, one.form, whole);
      o.verdict != Verdict::passed)
    return o;
  for (const std::int32_t granules : {1, 2, 3}) {
    const auto piece = static_cast<std::int32_t>(granules * kPromptGranule);
    Answer cut;
    Outcome o = answer_in_pieces(one, *scene, piece, one.form, cut);
    if (o.verdict == Verdict::passed) o = compare_bits(*scene->problem, cut, whole);
    if (o.verdict == Verdict::passed) continue;
    o.reason = base::join("pieces of ", piece, ": ", o.reason);
    return o;
  }
  return against_reference(subject, *scene->problem, whole);
}

Outcome chunked_equals_whole(const Subject& subject, const Case& one) {
  for (const std::int32_t piece : {17, 64}) {
    Outcome o = run_in_pieces(subject, one, piece, BatchForm::extend);
    if (o.verdict != Verdict::passed) {
      o.reason = base::join("chunks of ", piece, ": ", o.reason);
      return o;
    }
  }
  return run_in_pieces(subject, one, 1 << 20, BatchForm::extend);
}

Outcome prefill_equals_decodes(const Subject& subject, const Case& one) {
  return run_in_pieces(subject, one, 1, BatchForm::decode);
}

/// The steps before the last token of every request: what a decode loop plans.
Step all_but_last(const Case& one) {
  Step step{.form = one.form};
  for (std::size_t i = 0; i < one.requests.size(); ++i)
    step.parts.push_back({.request = static_cast<std::int32_t>(i), .num_rows = 1});
  return step;
}

Step last_rows(const Case& one) {
  Step step = all_but_last(one);
  for (Step::Part& part : step.parts)
    part.first_row = one.requests[static_cast<std::size_t>(part.request)].qo_len - 1;
  return step;
}

Outcome refresh_equals_fresh(const Subject& subject, const Case& one) {
  // Planned for the longest keys, refreshed to every earlier length and back.
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  const Stream stream = stage.memory().stream();
  Step step = last_rows(one);
  step.form = BatchForm::decode;
  auto planned = stage.prepare(step);
  if (!planned.ok()) return failed(planned.status().text());
  auto workspace = stage.workspace(*scene->backend, (*planned)->batch);
  if (!workspace.ok()) return failed(workspace.status().text());
  auto plan = scene->backend->plan((*planned)->batch, workspace->view, stream);
  if (!plan.ok()) return outcome_of(plan.status(), one);

  Answer answer = stage.blank_answer();
  const std::int32_t rows = one.requests[0].qo_len;
  for (std::int32_t row = rows - 1; row >= 0; --row) {
    for (Step::Part& part : step.parts) part.first_row = row;
    auto prepared = stage.prepare(step);
    if (!prepared.ok()) return failed(prepared.status().text());
    if (Status s = scene->backend->refresh(**plan, (*prepared)->batch, stream); !s.ok())
      return outcome_of(s, one);
    if (Status s = scene->backend->run(**plan, (*prepared)->call, stream); !s.ok())
      return outcome_of(s, one);
    if (Status s = stage.collect(**prepared, answer); !s.ok()) return failed(s.text());
  }
  if (Status s = workspace->check_guards(); !s.ok()) return failed(s.text());
  return against_reference(subject, *scene->problem, answer);
}

Outcome neighbours_do_not_matter(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  Answer together = stage.blank_answer();
  if (Status s = stage.execute(*scene->backend, whole_step(one), together); !s.ok())
    return outcome_of(s, one);
  Answer alone = stage.blank_answer();
  for (const Step::Part& part : whole_step(one).parts)
    if (Status s = stage.execute(*scene->backend, {.form = one.form, .parts = {part}}, alone);
        !s.ok())
      return outcome_of(s, one);
  if (one.exercises.has(Feature::batch_invariant))
    if (Outcome o = compare_bits(*scene->problem, alone, together); o.verdict != Verdict::passed)
      return o;
  return compare(*scene->problem, alone, together);
}

/// The first `cut` keys, seen by every query, apart from the rest.
Outcome parts_merge(const Subject& subject, const Case& one) {
  const std::int32_t cut = one.requests[0].kv_len - one.requests[0].qo_len;
  Case prefix = one;
  prefix.spec.causal = false;
  prefix.spec.kind = AttentionKind::cross;
  prefix.requests[0].kv_len = cut;
  Case suffix = one;
  suffix.requests[0].kv_len = one.requests[0].qo_len;

  // Both parts take their values from the whole problem.
  const Problem whole = make_problem(one);
  Answer parts[2];
  for (int part = 0; part < 2; ++part) {
    const Case& mine = part == 0 ? prefix : suffix;
    auto backend = subject.make(context_of(subject, mine));
    if (!backend.ok()) return outcome_of(backend.status(), one);
    Problem problem = make_problem(mine);
    const auto slice = [&](const std::vector<char>& rows) {
      const auto row = rows.size() / static_cast<std::size_t>(one.requests[0].kv_len);
      const auto begin = part == 0 ? 0 : static_cast<std::size_t>(cut) * row;
      const auto length = static_cast<std::size_t>(mine.requests[0].kv_len) * row;
      return std::vector<char>(rows.begin() + static_cast<std::ptrdiff_t>(begin),
                               rows.begin() + static_cast<std::ptrdiff_t>(begin + length));
    };
    problem.q = whole.q;
    problem.k = slice(whole.k);
    if (!whole.v.empty()) problem.v = slice(whole.v);
    auto stage = Stage::make(subject, mine, problem);
    if (!stage.ok()) return failed(stage.status().text());
    parts[part] = (*stage)->blank_answer();
    if (Status s = (*stage)->execute(**backend, whole_step(mine), parts[part]); !s.ok())
      return outcome_of(s, one);
  }
  Answer merged = parts[0];
  const auto width = static_cast<std::size_t>(one.spec.head_dim_vo);
  for (std::size_t row = 0; row < merged.lse.size(); ++row) {
    const auto w = attention::merge_weights(parts[0].lse[row], parts[1].lse[row]);
    merged.lse[row] = w.lse;
    for (std::size_t d = row * width; d < (row + 1) * width; ++d)
      merged.o[d] = w.a * parts[0].o[d] + w.b * parts[1].o[d];
  }
  return against_reference(subject, whole, merged);
}

Outcome cascade_equals_flat(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  const Problem& problem = *scene->problem;
  Answer cascade = scene->stage->blank_answer();
  if (Status s = scene->stage->execute(*scene->backend, whole_step(one), cascade); !s.ok())
    return outcome_of(s, one);
  auto unnamed = Stage::make(subject, one, problem, {.names_groups = false});
  if (!unnamed.ok()) return failed(unnamed.status().text());
  Answer flat = (*unnamed)->blank_answer();
  if (Status s = (*unnamed)->execute(*scene->backend, whole_step(one), flat); !s.ok())
    return outcome_of(s, one);
  if (one.exercises.has(Feature::batch_invariant))
    if (Outcome o = compare_bits(problem, cascade, flat); o.verdict != Verdict::passed) return o;
  if (Outcome o = compare(problem, cascade, flat); o.verdict != Verdict::passed) return o;
  return against_reference(subject, problem, cascade);
}

Outcome all_kept_equals_dense(const Subject& subject, const Case& one) {
  Answer answer;
  Problem problem;
  if (Outcome o = run_whole(subject, one, {}, answer, problem); o.verdict != Verdict::passed)
    return o;
  AttentionSpec& spec = problem.spec;
  if (spec.variant == Variant::sparse_mla) spec.variant = Variant::mla;
  if (spec.variant == Variant::minimax_sparse) spec.variant = Variant::gqa;
  spec.index_num_heads = spec.index_head_dim = spec.index_topk = 0;
  spec.index_block_size = spec.index_init_blocks = spec.index_local_blocks = 0;
  answer.lists.clear();
  return against_reference(subject, problem, answer);
}

Outcome one_chunk_equals_dense(const Subject& subject, const Case& one) {
  Answer answer;
  Problem problem;
  if (Outcome o = run_whole(subject, one, {}, answer, problem); o.verdict != Verdict::passed)
    return o;
  AttentionSpec& spec = problem.spec;
  const std::size_t head = static_cast<std::size_t>(spec.q_columns()) * size_of(spec.q_dtype);
  spec.variant = Variant::gqa;
  spec.dual_chunk_len = 0;
  const auto own = static_cast<std::ptrdiff_t>(head / kDualChunkQueries);
  std::vector<char> q;
  for (auto at = problem.q.begin(); at != problem.q.end(); at += static_cast<std::ptrdiff_t>(head))
    q.insert(q.end(), at, at + own);
  problem.q = std::move(q);
  return against_reference(subject, problem, answer);
}

Outcome graph_replay(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  Step step = last_rows(one);
  step.form = BatchForm::decode;
  auto planned = stage.prepare(step);
  if (!planned.ok()) return failed(planned.status().text());
  auto workspace = stage.workspace(*scene->backend, (*planned)->batch);
  if (!workspace.ok()) return failed(workspace.status().text());
  auto plan = scene->backend->plan((*planned)->batch, workspace->view, stage.memory().stream());
  if (!plan.ok()) return outcome_of(plan.status(), one);
  auto recording = stage.memory().record(
      [&](Stream stream) { return scene->backend->run(**plan, (*planned)->call, stream); });
  if (!recording.ok()) {
    const std::string why = recording.status().text();
    return recording.status().code() == StatusCode::unsupported ? skipped(why) : failed(why);
  }

  // The recorded addresses get each earlier row's query in turn.
  Answer answer = stage.blank_answer();
  for (std::int32_t row = one.requests[0].qo_len - 1; row >= 0; --row) {
    for (Step::Part& part : step.parts) part.first_row = row;
    auto prepared = stage.prepare(step);
    if (!prepared.ok()) return failed(prepared.status().text());
    const auto q = (*prepared)->q.download();
    if (!q.ok()) return failed(q.status().text());
    if (Status s = (*planned)->q.upload(*q); !s.ok()) return failed(s.text());
    if (Status s = stage.copy_indexer(**prepared, **planned); !s.ok()) return failed(s.text());
    if (Status s = stage.blank(**planned); !s.ok()) return failed(s.text());
    if (Status s = scene->backend->refresh(**plan, (*prepared)->batch, stage.memory().stream());
        !s.ok())
      return outcome_of(s, one);
    if (Status s = (*recording)->replay(); !s.ok()) return failed(s.text());
    (*planned)->step = step;
    if (Status s = stage.collect(**planned, answer); !s.ok()) return failed(s.text());
  }
  // A batch of fewer rows than were recorded.
  step.parts.pop_back();
  auto fewer = stage.prepare(step);
  if (!fewer.ok()) return failed(fewer.status().text());
  if (scene->backend->refresh(**plan, (*fewer)->batch, stage.memory().stream()).ok())
    return failed("refresh accepted a batch that the recorded run does not fit");
  if (Status s = workspace->check_guards(); !s.ok()) return failed(s.text());
  return against_reference(subject, *scene->problem, answer);
}

}  // namespace

const Property kMatchesReference{"matches_reference", matches_reference};
const Property kPagesPermuted{"pages_permuted", pages_permuted};
const Property kDeterministic{"deterministic", deterministic};
const Property kChunkedEqualsWhole{"chunked_equals_whole", chunked_equals_whole};
const Property kCutsKeepBits{"cuts_keep_bits", cuts_keep_bits};
const Property kPrefillEqualsDecodes{"prefill_equals_decodes", prefill_equals_decodes};
const Property kRefreshEqualsFresh{"refresh_equals_fresh", refresh_equals_fresh};
const Property kNeighboursDoNotMatter{"neighbours_do_not_matter", neighbours_do_not_matter};
const Property kPartsMerge{"parts_merge", parts_merge};
const Property kCascadeEqualsFlat{"cascade_equals_flat", cascade_equals_flat};
const Property kAllKeptEqualsDense{"all_kept_equals_dense", all_kept_equals_dense};
const Property kOneChunkEqualsDense{"one_chunk_equals_dense", one_chunk_equals_dense};
const Property kGraphReplay{"graph_replay", graph_replay};

}  // namespace attune::conformance
