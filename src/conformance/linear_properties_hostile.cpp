// What linear attention must refuse.
#include <functional>
#include <string_view>
#include <vector>

#include "base/join.hpp"
#include "conformance/linear_properties.hpp"
#include "conformance/linear_scene.hpp"

namespace attune::conformance {
namespace {

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

const Property kLinearRefusesHostileInput{"refuses_hostile_input", refuses_hostile_input};

}  // namespace attune::conformance
