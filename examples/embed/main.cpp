// Attention in an engine of your own: a choice with its reason, a page pool, a plan, a run. Two
// requests decode one token each. All values are 0.5, and so is every output.
#include <attune/attune.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

using namespace attune;

namespace {

constexpr int kHeads = 8, kKvHeads = 2, kDim = 64, kPageSize = 16, kPages = 32;

/// Workspaces begin at a multiple of 256 bytes.
struct alignas(256) Line {
  std::byte bytes[256];
};

int fail(const Status& status) {
  std::fprintf(stderr, "%s\n", status.text().c_str());
  return 1;
}

/// All pages of a pool, in the layout that the backend reads.
TensorView cache_view(std::vector<float>& memory, KvLayout layout) {
  memory.resize(static_cast<std::size_t>(kPages) * kPageSize * kKvHeads * kDim);
  return layout == KvLayout::hnd
             ? TensorView::dense(memory.data(), DType::f32, {kPages, kKvHeads, kPageSize, kDim})
             : TensorView::dense(memory.data(), DType::f32, {kPages, kPageSize, kKvHeads, kDim});
}

}  // namespace

int main() {
  // What the layers ask of attention, and who serves that here.
  AttentionSpec spec{.num_qo_heads = kHeads,
                     .num_kv_heads = kKvHeads,
                     .head_dim_qk = kDim,
                     .head_dim_vo = kDim,
                     .sm_scale = 0.125f,
                     .q_dtype = DType::f32,
                     .o_dtype = DType::f32,
                     .kv_dtype = DType::f32};
  const DeviceInfo device = cpu_device();
  const auto threads = make_thread_pool(device.num_units);
  if (!threads.ok()) return fail(threads.status());
  const auto registry = Registry::open({});
  if (!registry.ok()) return fail(registry.status());
  const auto chosen = registry->select({.groups = {{.kind = "full", .spec = spec}}}, device,
                                       {.page_size = kPageSize});
  if (!chosen.ok()) return fail(chosen.status());
  const GroupSelection& group = chosen->groups[0];
  const PhaseSelection& decode = *group.of(Phase::decode);
  std::printf("%s: %s\n", decode.backend.c_str(), decode.why.c_str());
  const auto backend = registry->make(decode.backend, {.spec = spec,
                                                       .device = device,
                                                       .page_size = group.page_size,
                                                       .kv_layout = *group.kv_layout,
                                                       .executor = threads->get()});
  if (!backend.ok()) return fail(backend.status());

  // Once: pages for two requests of 20 and of 5 keys, and memory for plans.
  PagePool pool(kPages, kPageSize);
  std::vector<PageId> row_a, row_b;
  if (Status s = pool.allocate(2, row_a); !s.ok()) return fail(s);
  if (Status s = pool.allocate(1, row_b); !s.ok()) return fail(s);
  const WorkspaceSize size = (*backend)->workspace_size({.max_batch = 2,
                                                         .max_qo_tokens = 2,
                                                         .max_kv_entries = 3,
                                                         .max_kv_len = 20,
                                                         .page_size = kPageSize,
                                                         .decode_only = true});
  std::vector<Line> memory(size.device_bytes / sizeof(Line) + 1);
  const Workspace workspace{.device = memory.data(), .device_bytes = size.device_bytes};

  // Once a step: the batch, and a plan for it.
  const std::vector<std::int32_t> qo_indptr{0, 1, 2}, kv_indptr{0, 2, 3}, last_page_len{4, 5};
  const std::vector<std::int32_t> pages{int(row_a[0]), int(row_a[1]), int(row_b[0])};
  const BatchView batch{.form = BatchForm::decode,
                        .page_size = kPageSize,
                        .qo_indptr = qo_indptr,
                        .kv_indptr = kv_indptr,
                        .kv_indices = pages,
                        .kv_last_page_len = last_page_len};
  const auto plan = (*backend)->plan(batch, workspace, {});
  if (!plan.ok()) return fail(plan.status());

  // Once a layer: its new keys and values into their slots, then attention. This example appends
  // what a prefill would have left as well: 25 tokens.
  std::vector<std::int64_t> slots;
  for (int j = 0; j < 20; ++j)
    slots.push_back(std::int64_t{int(row_a[static_cast<std::size_t>(j / kPageSize)])} * kPageSize +
                    j % kPageSize);
  for (int j = 0; j < 5; ++j) slots.push_back(std::int64_t{int(row_b[0])} * kPageSize + j);
  std::vector<float> q(2 * kHeads * kDim, 1.0f), o(q.size()), k_pool, v_pool;
  std::vector<float> k(25 * kKvHeads * kDim, 0.1f), v(k.size(), 0.5f);
  LayerCall call;
  call.q = TensorView::dense(q.data(), DType::f32, {2, kHeads, kDim});
  call.o = TensorView::dense(o.data(), DType::f32, {2, kHeads, kDim});
  call.k = TensorView::dense(k.data(), DType::f32, {25, kKvHeads, kDim});
  call.v = TensorView::dense(v.data(), DType::f32, {25, kKvHeads, kDim});
  call.slot_mapping = slots;
  call.k_cache = cache_view(k_pool, *group.kv_layout);
  call.v_cache = cache_view(v_pool, *group.kv_layout);
  if (const Status s = (*backend)->append_kv(call, {}); !s.ok()) return fail(s);
  if (const Status s = (*backend)->run(**plan, call, {}); !s.ok()) return fail(s);
  std::printf("o[0] = %.3f, o[last] = %.3f\n", o.front(), o.back());
}
