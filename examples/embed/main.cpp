// Attention in an engine of one's own: a page pool, a choice with its reason, a plan, a run. Two
// requests decode one token each.
#include <attune/attune.hpp>

#include <cstdio>
#include <vector>

int main() {
  using namespace attune;
  constexpr int kHeads = 8, kKvHeads = 2, kDim = 64, kPageSize = 16, kPages = 32;
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
  const auto registry = Registry::open({});
  const auto chosen = registry->select({.groups = {{.kind = "full", .spec = spec}}}, device,
                                       {.page_size = kPageSize});
  if (!chosen.ok()) return std::puts(chosen.status().text().c_str()), 1;
  const PhaseSelection& decode = *chosen->groups[0].of(Phase::decode);
  std::printf("%s: %s\n", decode.backend.c_str(), decode.why.c_str());
  const auto backend = registry->make(
      decode.backend,
      {.spec = spec, .device = device, .page_size = kPageSize, .executor = threads->get()});
  if (!backend.ok()) return std::puts(backend.status().text().c_str()), 1;

  PagePool pool(kPages, kPageSize);
  std::vector<PageId> row_a, row_b;  // request a has 20 keys, request b has 5
  if (!pool.allocate(2, row_a).ok() || !pool.allocate(1, row_b).ok()) return 1;
  const std::vector<std::int32_t> qo_indptr{0, 1, 2}, kv_indptr{0, 2, 3}, last_page_len{4, 5};
  const std::vector<std::int32_t> pages{int(row_a[0]), int(row_a[1]), int(row_b[0])};
  const BatchView batch{.form = BatchForm::decode,
                        .page_size = kPageSize,
                        .qo_indptr = qo_indptr,
                        .kv_indptr = kv_indptr,
                        .kv_indices = pages,
                        .kv_last_page_len = last_page_len};
  const WorkspaceSize size = (*backend)->workspace_size({.max_batch = 2,
                                                         .max_qo_tokens = 2,
                                                         .max_kv_entries = 3,
                                                         .max_kv_len = 20,
                                                         .page_size = kPageSize,
                                                         .decode_only = true});
  std::vector<std::byte> workspace(size.device_bytes + 256);  // aligned to 256 below
  void* aligned =
      reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(workspace.data()) + 255) & ~255ul);
  const auto plan =
      (*backend)->plan(batch, {.device = aligned, .device_bytes = size.device_bytes}, {});
  if (!plan.ok()) return std::puts(plan.status().text().c_str()), 1;

  std::vector<float> q(2 * kHeads * kDim, 1.0f), o(q.size()),
      k(kPages * kPageSize * kKvHeads * kDim, 0.1f);
  std::vector<float> v(k.size(), 0.5f);
  LayerCall call;
  call.q = TensorView::dense(q.data(), DType::f32, {2, kHeads, kDim});
  call.o = TensorView::dense(o.data(), DType::f32, {2, kHeads, kDim});
  call.k_cache = TensorView::dense(k.data(), DType::f32, {kPages, kPageSize, kKvHeads, kDim});
  call.v_cache = TensorView::dense(v.data(), DType::f32, {kPages, kPageSize, kKvHeads, kDim});
  if (const Status s = (*backend)->run(**plan, call, {}); !s.ok())
    return std::puts(s.text().c_str()), 1;
  std::printf("o[0] = %.3f, o[last] = %.3f\n", o.front(),
              o.back());  // values are all 0.5, so is their mean
}
