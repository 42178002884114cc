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

/// Offers a backend what it must refuse, and notes what it accepts.
class Offers {
 public:
  Offers(const Subject& subject, const Case& one, Backend& backend, const Prepared& prepared,
         const Workspace& workspace, Stream stream)
      : subject_(subject),
        case_(one),
        backend_(backend),
        prepared_(prepared),
        workspace_(workspace),
        stream_(stream) {}

  void make_batches();
  void make_calls(const Plan& plan);
  void make_lists(const Plan& plan);
  void make_compressed(const Plan& plan);
  [[nodiscard]] const std::string& accepted() const { return accepted_; }

 private:
  void note(std::string_view what) { accepted_ += base::join(accepted_.empty() ? "" : ", ", what); }
  void expect_no_plan(std::string_view what, const BatchView& batch) {
    if (backend_.plan(batch, workspace_, stream_).ok()) note(what);
  }
  void expect_no_run(const Plan& plan, std::string_view what, const LayerCall& call) {
    if (backend_.run(plan, call, stream_).ok()) note(what);
  }
  /// The case's own call, but for one thing.
  LayerCall with(const auto& change) const {
    LayerCall call = prepared_.call;
    change(call);
    return call;
  }

  const Subject& subject_;
  const Case& case_;
  Backend& backend_;
  const Prepared& prepared_;
  Workspace workspace_;
  Stream stream_;
  std::string accepted_;
};

void Offers::make_batches() {
  const auto changed = [](std::vector<std::int32_t> values, std::size_t at, std::int32_t to) {
    values[at] = to;
    return values;
  };
  const auto qo_falls = changed(prepared_.qo_indptr, 1, prepared_.qo_indptr.back() + 5);
  const auto qo_starts = changed(prepared_.qo_indptr, 0, 1);
  const auto kv_falls = changed(prepared_.kv_indptr, 1, prepared_.kv_indptr.back() + 5);
  const auto kv_negative = changed(prepared_.kv_indptr, 0, -1);
  const auto id_negative = changed(prepared_.kv_indices, 0, -1);
  const auto last_zero = changed(prepared_.kv_last_page_len, 0, 0);
  const auto last_long = changed(prepared_.kv_last_page_len, 0, case_.page_size + 1);
  BatchView b = prepared_.batch;
  b.qo_indptr = qo_falls;
  expect_no_plan("a falling qo_indptr", b);
  b.qo_indptr = qo_starts;
  expect_no_plan("a qo_indptr that does not start at 0", b);
  b = prepared_.batch;
  b.kv_indptr = kv_falls;
  expect_no_plan("a falling kv_indptr", b);
  b.kv_indptr = kv_negative;
  expect_no_plan("a negative kv_indptr", b);
  b.kv_indptr = prepared_.batch.kv_indptr.first(prepared_.kv_indptr.size() - 1);
  expect_no_plan("a short kv_indptr", b);
  b = prepared_.batch;
  b.kv_indices = prepared_.batch.kv_indices.first(prepared_.kv_indices.size() - 1);
  expect_no_plan("short kv_indices", b);
  b.kv_indices = id_negative;
  expect_no_plan("a negative page id", b);
  b = prepared_.batch;
  b.kv_last_page_len = last_zero;
  expect_no_plan("a kv_last_page_len of 0", b);
  b.kv_last_page_len = last_long;
  expect_no_plan("a kv_last_page_len beyond the page", b);
  b = prepared_.batch;
  b.page_size = case_.page_size + 1;
  expect_no_plan("another page_size", b);
  b = prepared_.batch;
  const std::vector<std::uint8_t> bits(1);
  b.custom_mask = bits;
  expect_no_plan("a mask the spec does not ask for", b);

  // Nothing may read what these point to.
  b = prepared_.batch;
  b.on_device = {.kv_indptr = prepared_.kv_indptr.data(),
                 .kv_indices = prepared_.kv_indices.data(),
                 .kv_last_page_len = prepared_.kv_last_page_len.data(),
                 .max_kv_entries = static_cast<std::int64_t>(prepared_.kv_indices.size()),
                 .max_kv_len = case_.requests[0].kv_len};
  expect_no_plan("page tables on both sides", b);
  b.kv_indptr = b.kv_indices = b.kv_last_page_len = {};
  if (!declares(subject_, Feature::device_planning)) expect_no_plan("page tables on the device", b);
}

void Offers::make_calls(const Plan& plan) {
  const auto* some_floats = reinterpret_cast<const float*>(prepared_.q.data());
  expect_no_run(plan, "q of another shape", with([](LayerCall& c) { --c.q.shape[0]; }));
  expect_no_run(plan, "q of another dtype", with([](LayerCall& c) { c.q.dtype = DType::f64; }));
  expect_no_run(plan, "q without memory", with([](LayerCall& c) { c.q.data = nullptr; }));
  expect_no_run(plan, "q with an inner stride", with([](LayerCall& c) { c.q.stride[2] = 2; }));
  expect_no_run(plan, "o of another shape", with([](LayerCall& c) { ++c.o.shape[1]; }));
  expect_no_run(plan, "o that overlaps itself", with([](LayerCall& c) { c.o.stride[0] = 0; }));
  expect_no_run(plan, "a cache without the named page",
                with([](LayerCall& c) { c.k_cache.shape[0] = c.v_cache.shape[0] = 0; }));
  expect_no_run(plan, "a cache of another dtype",
                with([](LayerCall& c) { c.k_cache.dtype = DType::i64; }));
  expect_no_run(plan, "sinks the spec does not ask for",
                with([&](LayerCall& c) { c.sinks = some_floats; }));
  expect_no_run(plan, "slopes the spec does not ask for",
                with([&](LayerCall& c) { c.alibi_slopes = some_floats; }));
  expect_no_run(plan, "scales the spec does not ask for",
                with([](LayerCall& c) { c.k_scale = c.v_scale = 2.0f; }));
  expect_no_run(plan, "a scale of zero", with([](LayerCall& c) { c.k_scale = c.v_scale = 0.0f; }));
}

/// Of the keys that sparse attention keeps.
void Offers::make_lists(const Plan& plan) {
  expect_no_run(plan, "no lists of kept keys", with([](LayerCall& c) { c.sparse = nullptr; }));
  SparseCall changed_lists;
  const auto with_sparse = [&](auto change) {
    changed_lists = prepared_.sparse;
    change(changed_lists);
    return with([&](LayerCall& c) { c.sparse = &changed_lists; });
  };
  expect_no_run(plan, "lists of another length",
                with_sparse([](SparseCall& s) { ++s.topk_indices.shape[1]; }));
  expect_no_run(plan, "lists of another dtype",
                with_sparse([](SparseCall& s) { s.topk_indices.dtype = DType::i64; }));
  expect_no_run(plan, "lists that overlap",
                with_sparse([](SparseCall& s) { s.topk_indices.stride[0] = 0; }));
  expect_no_run(plan, "index queries of other heads",
                with_sparse([](SparseCall& s) { --s.index_q.shape[1]; }));
  // Of lists a head there are none to be missing, but some to be too many.
  const TensorView weights = prepared_.sparse.index_weights;
  expect_no_run(plan, weights.defined() ? "no index weights" : "index weights of lists a head",
                with_sparse([&](SparseCall& s) {
                  s.index_weights = weights.defined() ? TensorView{} : s.index_q;
                }));
  expect_no_run(plan, "index keys of fewer pages",
                with_sparse([](SparseCall& s) { --s.index_cache.shape[0]; }));
  expect_no_run(plan, "index keys of another dtype",
                with_sparse([](SparseCall& s) { s.index_cache.dtype = DType::i64; }));
}

/// Of the keys that stand for several tokens.
void Offers::make_compressed(const Plan& plan) {
  expect_no_run(plan, "no compressed keys", with([](LayerCall& c) { c.compressed = nullptr; }));
  CompressedCall changed;
  const auto with_compressed = [&](auto change) {
    changed = prepared_.compressed;
    change(changed);
    return with([&](LayerCall& c) { c.compressed = &changed; });
  };
  expect_no_run(plan, "compressed keys of fewer pages",
                with_compressed([](CompressedCall& c) { c.cache.shape[0] = 0; }));
  expect_no_run(plan, "compressed keys of another width",
                with_compressed([](CompressedCall& c) { --c.cache.shape[2]; }));
  expect_no_run(plan, "compressed keys of another dtype",
                with_compressed([](CompressedCall& c) { c.cache.dtype = DType::i64; }));
  BatchView b = prepared_.batch;
  b.compressed = {};
  expect_no_plan("no table of compressed keys", b);
  b = prepared_.batch;
  const std::span<const std::int32_t> pages = b.compressed.kv_indices;
  b.compressed.kv_indices = pages.first(pages.size() - 1);
  expect_no_plan("too few pages of compressed keys", b);
  std::vector<std::int32_t> negative(pages.begin(), pages.end());
  negative[0] = -1;
  b.compressed.kv_indices = negative;
  expect_no_plan("a negative page id of compressed keys", b);
}

Outcome refuses_hostile_input(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  const Stream stream = scene->stage->memory().stream();
  auto prepared = scene->stage->prepare(whole_step(one));
  if (!prepared.ok()) return failed(prepared.status().text());
  auto workspace = scene->stage->workspace(*scene->backend, (*prepared)->batch);
  if (!workspace.ok()) return failed(workspace.status().text());

  Offers offers(subject, one, *scene->backend, **prepared, workspace->view, stream);
  offers.make_batches();
  auto plan = scene->backend->plan((*prepared)->batch, workspace->view, stream);
  if (!plan.ok()) return outcome_of(plan.status(), one);
  offers.make_calls(**plan);
  if ((*prepared)->call.sparse != nullptr) offers.make_lists(**plan);
  if ((*prepared)->call.compressed != nullptr) offers.make_compressed(**plan);

  const auto o = (*prepared)->o.download();
  if (!o.ok()) return failed(o.status().text());
  if (std::any_of(o->begin(), o->end(), [](char x) { return x != static_cast<char>(0xff); }))
    return failed("a refused run wrote into o");
  if (!offers.accepted().empty()) return failed(base::join("accepted: ", offers.accepted()));
  return {};
}

}  // namespace

const Property kRefusesHostileInput{"refuses_hostile_input", refuses_hostile_input};

}  // namespace attune::conformance
