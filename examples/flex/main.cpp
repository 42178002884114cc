// A variant of one's own, without a kernel of one's own: documents packed into one prompt, each seeing
// itself alone, under a bias by distance that no backend knows. Compared with the same documents as
// requests of their own, and timed beside the causal prompt without either function.
#include <attune/attune.hpp>
#include <attune/validate.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

using namespace attune;

namespace {

constexpr int kHeads = 8, kKvHeads = 2, kDim = 128;
constexpr std::int32_t kDocument = 512, kDocuments = 8, kTokens = kDocument * kDocuments;

/// Workspaces begin at a multiple of 256 bytes.
struct alignas(256) Line {
  std::byte bytes[256];
};

/// Attention over keys that are given token by token: no pool, no pages.
struct Attention {
  std::unique_ptr<Backend> backend;
  LayerCall call;
  double milliseconds = 0.0;

  Status run(const BatchView& batch) {
    const WorkspaceSize size = backend->workspace_size(attention::bounds_of(batch));
    std::vector<Line> memory(size.device_bytes / sizeof(Line) + 1);
    const auto plan =
        backend->plan(batch, {.device = memory.data(), .device_bytes = size.device_bytes}, {});
    if (!plan.ok()) return plan.status();
    const auto start = std::chrono::steady_clock::now();
    Status done = backend->run(**plan, call, {});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    milliseconds = took.count();
    return done;
  }
};

/// The backend that selection takes for `spec`, and why.
Result<std::unique_ptr<Backend>> backend_for(const Registry& registry, const AttentionSpec& spec,
                                             Executor* threads) {
  const DeviceInfo device = cpu_device();
  const auto chosen = registry.select({.groups = {{.kind = "full", .spec = spec}}}, device, {});
  if (!chosen.ok()) return chosen.status();
  const GroupSelection& group = chosen->groups[0];
  const PhaseSelection& prefill = *group.of(Phase::prefill);
  std::printf("%s: %s\n", prefill.backend.c_str(), prefill.why.c_str());
  return registry.make(prefill.backend, {.spec = spec,
                                         .device = device,
                                         .page_size = group.page_size,
                                         .kv_layout = *group.kv_layout,
                                         .executor = threads});
}

Status compare() {
  const auto threads = make_thread_pool(cpu_device().num_units);
  if (!threads.ok()) return threads.status();
  const auto registry = Registry::open({});
  if (!registry.ok()) return registry.status();

  AttentionSpec plain{.num_qo_heads = kHeads,
                      .num_kv_heads = kKvHeads,
                      .head_dim_qk = kDim,
                      .head_dim_vo = kDim,
                      .sm_scale = 1.0f / std::sqrt(static_cast<float>(kDim)),
                      .q_dtype = DType::f32,
                      .o_dtype = DType::f32,
                      .kv_dtype = DType::f32};
  AttentionSpec biased = plain, packed = plain;
  biased.score_mod = packed.score_mod = packed.block_mask = true;

  std::vector<float> q(std::size_t{kTokens} * kHeads * kDim), k(q.size() / 4), v(k.size());
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(0.37f * static_cast<float>(i));
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = std::cos(0.11f * static_cast<float>(i));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(0.05f * static_cast<float>(i));
  std::vector<float> together(q.size()), apart(q.size());
  LayerCall call;
  call.q = TensorView::dense(q.data(), DType::f32, {kTokens, kHeads, kDim});
  call.k = TensorView::dense(k.data(), DType::f32, {kTokens, kKvHeads, kDim});
  call.v = TensorView::dense(v.data(), DType::f32, {kTokens, kKvHeads, kDim});

  // The two functions. Whatever they read belongs to the program.
  const auto same_document = [](const FlexPair& at) {
    return at.kv_position <= at.q_position &&
           at.kv_position / kDocument == at.q_position / kDocument;
  };
  const auto nearer_counts_more = [](float score, const FlexPair& at) {
    return score - 0.01f * static_cast<float>(at.q_position - at.kv_position) *
                       static_cast<float>(at.qo_head + 1);
  };

  // One prompt of all documents.
  const std::vector<std::int32_t> one{0, kTokens};
  BatchView batch{
      .form = BatchForm::extend, .source = KvSource::ragged, .qo_indptr = one, .kv_indptr = one};
  const auto mask = make_block_mask(mask_function(same_document), batch, 1);
  if (!mask.ok()) return mask.status();
  batch.block_mask = mask->view();
  auto made = backend_for(*registry, packed, threads->get());
  if (!made.ok()) return made.status();
  Attention documents{.backend = std::move(*made), .call = call};
  documents.call.o = TensorView::dense(together.data(), DType::f32, {kTokens, kHeads, kDim});
  documents.call.score_mod = score_function(nearer_counts_more);
  if (Status s = documents.run(batch); !s.ok()) return s;
  if (Status s = documents.run(batch); !s.ok()) return s;

  // Each document a request: the causal rule does what the mask did.
  std::vector<std::int32_t> each;
  for (std::int32_t d = 0; d <= kDocuments; ++d) each.push_back(d * kDocument);
  made = backend_for(*registry, biased, threads->get());
  if (!made.ok()) return made.status();
  Attention requests{.backend = std::move(*made), .call = documents.call};
  requests.call.o = TensorView::dense(apart.data(), DType::f32, {kTokens, kHeads, kDim});
  if (Status s = requests.run({.form = BatchForm::extend,
                               .source = KvSource::ragged,
                               .qo_indptr = each,
                               .kv_indptr = each});
      !s.ok())
    return s;
  float difference = 0.0f;
  for (std::size_t i = 0; i < together.size(); ++i)
    difference = std::max(difference, std::fabs(together[i] - apart[i]));

  // The prompt without functions, for the time.
  batch.block_mask = {};
  made = backend_for(*registry, plain, threads->get());
  if (!made.ok()) return made.status();
  Attention causal{.backend = std::move(*made), .call = requests.call};
  causal.call.score_mod = {};
  if (Status s = causal.run(batch); !s.ok()) return s;
  if (Status s = causal.run(batch); !s.ok()) return s;

  std::printf("%d documents of %d tokens: %.0f %% of all blocks hidden, %.1f ms; causal %.1f ms\n",
              kDocuments, kDocument, 100.0 * mask->sparsity(), documents.milliseconds,
              causal.milliseconds);
  std::printf("largest difference from documents by themselves: %.1e\n", difference);
  if (difference < 1e-4f) return {};
  return internal_error("packed documents differ from documents by themselves");
}

}  // namespace

int main() {
  const Status done = compare();
  if (done.ok()) return 0;
  std::fprintf(stderr, "%s\n", done.text().c_str());
  return 1;
}
