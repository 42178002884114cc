// What every backend must refuse, without writing anything.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/join.hpp"
#include "conformance/properties.hpp"
#include "conformance/scene.hpp"

namespace attune::conformance {
namespace {

bool declares(const Subject& subject, Feature feature) {
  const auto& rows = subject.descriptor->capabilities;
  return std::any_of(rows.begin(), rows.end(), [&](const Capability& row) {
    return row.device == subject.device.kind && row.features.has(feature);
  });
}

Outcome refuses_hostile_input(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  Stage& stage = *scene->stage;
  const Stream stream = stage.memory().stream();
  auto prepared = stage.prepare(whole_step(one));
  if (!prepared.ok()) return failed(prepared.status().text());
  Prepared& p = **prepared;
  auto workspace = stage.workspace(*scene->backend, p.batch);
  if (!workspace.ok()) return failed(workspace.status().text());
  Backend& backend = *scene->backend;

  const auto plan_of = [&](const BatchView& batch) {
    return backend.plan(batch, workspace->view, stream);
  };
  std::string accepted;
  const auto expect_no_plan = [&](std::string_view what, const BatchView& batch) {
    if (plan_of(batch).ok()) accepted += base::join(accepted.empty() ? "" : ", ", what);
  };
  const auto changed = [](std::vector<std::int32_t> values, std::size_t at, std::int32_t to) {
    values[at] = to;
    return values;
  };
  const auto qo_falls = changed(p.qo_indptr, 1, p.qo_indptr.back() + 5);
  const auto qo_starts = changed(p.qo_indptr, 0, 1);
  const auto kv_falls = changed(p.kv_indptr, 1, p.kv_indptr.back() + 5);
  const auto kv_negative = changed(p.kv_indptr, 0, -1);
  const auto id_negative = changed(p.kv_indices, 0, -1);
  const auto last_zero = changed(p.kv_last_page_len, 0, 0);
  const auto last_long = changed(p.kv_last_page_len, 0, one.page_size + 1);
  BatchView b = p.batch;
  b.qo_indptr = qo_falls;
  expect_no_plan("a falling qo_indptr", b);
  b.qo_indptr = qo_starts;
  expect_no_plan("a qo_indptr that does not start at 0", b);
  b = p.batch;
  b.kv_indptr = kv_falls;
  expect_no_plan("a falling kv_indptr", b);
  b.kv_indptr = kv_negative;
  expect_no_plan("a negative kv_indptr", b);
  b.kv_indptr = p.batch.kv_indptr.first(p.kv_indptr.size() - 1);
  expect_no_plan("a short kv_indptr", b);
  b = p.batch;
  b.kv_indices = p.batch.kv_indices.first(p.kv_indices.size() - 1);
  expect_no_plan("short kv_indices", b);
  b.kv_indices = id_negative;
  expect_no_plan("a negative page id", b);
  b = p.batch;
  b.kv_last_page_len = last_zero;
  expect_no_plan("a kv_last_page_len of 0", b);
  b.kv_last_page_len = last_long;
  expect_no_plan("a kv_last_page_len beyond the page", b);
  b = p.batch;
  b.page_size = one.page_size + 1;
  expect_no_plan("another page_size", b);
  b = p.batch;
  const std::vector<std::uint8_t> bits(1);
  b.custom_mask = bits;
  expect_no_plan("a mask the spec does not ask for", b);

  // Nothing may read what these point to.
  b = p.batch;
  b.on_device = {.kv_indptr = p.kv_indptr.data(),
                 .kv_indices = p.kv_indices.data(),
                 .kv_last_page_len = p.kv_last_page_len.data(),
                 .max_kv_entries = static_cast<std::int64_t>(p.kv_indices.size()),
                 .max_kv_len = one.requests[0].kv_len};
  expect_no_plan("page tables on both sides", b);
  b.kv_indptr = b.kv_indices = b.kv_last_page_len = {};
  if (!declares(subject, Feature::device_planning)) expect_no_plan("page tables on the device", b);

  auto plan = plan_of(p.batch);
  if (!plan.ok()) return outcome_of(plan.status(), one);
  const auto expect_no_run = [&](std::string_view what, const LayerCall& call) {
    if (backend.run(**plan, call, stream).ok())
      accepted += base::join(accepted.empty() ? "" : ", ", what);
  };
  const auto* some_floats = reinterpret_cast<const float*>(p.q.data());
  const auto with = [&](auto change) {
    LayerCall call = p.call;
    change(call);
    return call;
  };
  expect_no_run("q of another shape", with([](LayerCall& c) { --c.q.shape[0]; }));
  expect_no_run("q of another dtype", with([](LayerCall& c) { c.q.dtype = DType::f64; }));
  expect_no_run("q without memory", with([](LayerCall& c) { c.q.data = nullptr; }));
  expect_no_run("q with an inner stride", with([](LayerCall& c) { c.q.stride[2] = 2; }));
  expect_no_run("o of another shape", with([](LayerCall& c) { ++c.o.shape[1]; }));
  expect_no_run("o that overlaps itself", with([](LayerCall& c) { c.o.stride[0] = 0; }));
  expect_no_run("a cache without the named page",
                with([](LayerCall& c) { c.k_cache.shape[0] = c.v_cache.shape[0] = 0; }));
  expect_no_run("a cache of another dtype",
                with([](LayerCall& c) { c.k_cache.dtype = DType::i64; }));
  expect_no_run("sinks the spec does not ask for",
                with([&](LayerCall& c) { c.sinks = some_floats; }));
  expect_no_run("slopes the spec does not ask for",
                with([&](LayerCall& c) { c.alibi_slopes = some_floats; }));
  expect_no_run("scales the spec does not ask for",
                with([](LayerCall& c) { c.k_scale = c.v_scale = 2.0f; }));
  expect_no_run("a scale of zero", with([](LayerCall& c) { c.k_scale = c.v_scale = 0.0f; }));

  if (p.call.sparse != nullptr) {
    expect_no_run("no lists of kept keys", with([](LayerCall& c) { c.sparse = nullptr; }));
    SparseCall changed_lists;
    const auto with_sparse = [&](auto change) {
      changed_lists = p.sparse;
      change(changed_lists);
      return with([&](LayerCall& c) { c.sparse = &changed_lists; });
    };
    expect_no_run("lists of another length",
                  with_sparse([](SparseCall& s) { ++s.topk_indices.shape[1]; }));
    expect_no_run("lists of another dtype",
                  with_sparse([](SparseCall& s) { s.topk_indices.dtype = DType::i64; }));
    expect_no_run("lists that overlap",
                  with_sparse([](SparseCall& s) { s.topk_indices.stride[0] = 0; }));
    expect_no_run("index queries of other heads",
                  with_sparse([](SparseCall& s) { --s.index_q.shape[1]; }));
    expect_no_run("no index weights", with_sparse([](SparseCall& s) { s.index_weights = {}; }));
    expect_no_run("index keys of fewer pages",
                  with_sparse([](SparseCall& s) { --s.index_cache.shape[0]; }));
    expect_no_run("index keys of another dtype",
                  with_sparse([](SparseCall& s) { s.index_cache.dtype = DType::i64; }));
  }

  const auto o = p.o.download();
  if (!o.ok()) return failed(o.status().text());
  if (std::any_of(o->begin(), o->end(), [](char x) { return x != static_cast<char>(0xff); }))
    return failed("a refused run wrote into o");
  if (!accepted.empty()) return failed(base::join("accepted: ", accepted));
  return {};
}

}  // namespace

const Property kRefusesHostileInput{"refuses_hostile_input", refuses_hostile_input};

}  // namespace attune::conformance
