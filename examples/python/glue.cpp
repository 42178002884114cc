// Attune behind a few C functions, for whoever holds tensors as addresses: Python by ctypes, and so
// PyTorch, SGLang or vLLM. Decode over a paged cache in layout nhd; copy it and add what you need.
//
//   c++ -O2 -fPIC -shared glue.cpp -o libglue.so $(pkg-config --cflags --libs attune)
//   python3 attend.py ./libglue.so
#include <attune/attune.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

using namespace attune;

namespace {

struct Attention {
  AttentionSpec spec;
  int page_size;
  std::string why;  ///< the backend and the reason for it
  std::unique_ptr<Executor> threads;
  std::unique_ptr<Backend> backend;
};

thread_local std::string last_error;

/// What a function returns that failed.
struct Failure {
  operator Attention*() const { return nullptr; }
  operator bool() const { return false; }
};

Failure refuse(const Status& status) {
  last_error = status.text();
  return {};
}

}  // namespace

extern "C" {

/// Why the last call of this thread failed.
const char* attention_error() { return last_error.c_str(); }

/// `device`: cpu, cuda or cuda:N. `dtype`: of q, o and the cache: fp32, bf16 or fp16. Null on failure.
Attention* attention_open(const char* device, const char* dtype, int num_qo_heads, int num_kv_heads,
                          int head_dim, int page_size, float sm_scale) {
  const std::optional<DType> type = parse_dtype(dtype);
  if (!type) return refuse(invalid_argument(std::string(dtype) + " is not a dtype"));
  const auto where = parse_device(device);
  if (!where.ok()) return refuse(where.status());
  auto threads = make_thread_pool(cpu_device().num_units);
  if (!threads.ok()) return refuse(threads.status());
  const auto registry = Registry::open({});
  if (!registry.ok()) return refuse(registry.status());
  const AttentionSpec spec{.num_qo_heads = num_qo_heads,
                           .num_kv_heads = num_kv_heads,
                           .head_dim_qk = head_dim,
                           .head_dim_vo = head_dim,
                           .sm_scale = sm_scale,
                           .q_dtype = *type,
                           .o_dtype = *type,
                           .kv_dtype = *type};
  const auto chosen = registry->select({.groups = {{.kind = "full", .spec = spec}}}, *where,
                                       {.page_size = page_size});
  if (!chosen.ok()) return refuse(chosen.status());
  const PhaseSelection& decode = *chosen->groups[0].of(Phase::decode);
  auto backend = registry->make(decode.backend, {.spec = spec,
                                                 .device = *where,
                                                 .page_size = page_size,
                                                 .kv_layout = KvLayout::nhd,
                                                 .executor = threads->get()});
  if (!backend.ok()) return refuse(backend.status());
  return new Attention{spec, page_size, decode.backend + ": " + decode.why, std::move(*threads),
                       std::move(*backend)};
}

void attention_close(Attention* a) { delete a; }

const char* attention_why(const Attention* a) { return a->why.c_str(); }

/// Bytes of workspace, in the device's memory and aligned to 256, for batches up to these bounds.
std::size_t attention_workspace(const Attention* a, std::int64_t max_batch,
                                std::int64_t max_kv_entries, std::int64_t max_kv_len) {
  return a->backend
      ->workspace_size({.max_batch = max_batch,
                        .max_qo_tokens = max_batch,
                        .max_kv_entries = max_kv_entries,
                        .max_kv_len = max_kv_len,
                        .page_size = a->page_size,
                        .decode_only = true})
      .device_bytes;
}

/// One token of each request. The four index arrays are in the host's memory, everything else is in
/// the device's: q and o [batch, num_qo_heads, head_dim], both caches [num_pages, page_size,
/// num_kv_heads, head_dim]. `stream`: a cudaStream_t, null on a CPU. False on failure.
bool attention_decode(Attention* a, std::int64_t batch_size, const std::int32_t* qo_indptr,
                      const std::int32_t* kv_indptr, const std::int32_t* kv_indices,
                      const std::int32_t* kv_last_page_len, void* q, void* k_cache, void* v_cache,
                      std::int64_t num_pages, void* o, void* workspace, std::size_t workspace_bytes,
                      void* stream) {
  const auto n = static_cast<std::size_t>(batch_size);
  const BatchView batch{.form = BatchForm::decode,
                        .page_size = a->page_size,
                        .qo_indptr = {qo_indptr, n + 1},
                        .kv_indptr = {kv_indptr, n + 1},
                        .kv_indices = {kv_indices, static_cast<std::size_t>(kv_indptr[n])},
                        .kv_last_page_len = {kv_last_page_len, n}};
  const auto plan = a->backend->plan(batch, {.device = workspace, .device_bytes = workspace_bytes},
                                     {.handle = stream});
  if (!plan.ok()) return refuse(plan.status());
  const AttentionSpec& s = a->spec;
  LayerCall call;
  call.q = TensorView::dense(q, s.q_dtype, {batch_size, s.num_qo_heads, s.head_dim_qk});
  call.o = TensorView::dense(o, s.o_dtype, {batch_size, s.num_qo_heads, s.head_dim_vo});
  call.k_cache = TensorView::dense(k_cache, s.kv_dtype,
                                   {num_pages, a->page_size, s.num_kv_heads, s.head_dim_qk});
  call.v_cache = TensorView::dense(v_cache, s.kv_dtype,
                                   {num_pages, a->page_size, s.num_kv_heads, s.head_dim_vo});
  if (const Status ran = a->backend->run(**plan, call, {.handle = stream}); !ran.ok())
    return refuse(ran);
  return true;
}

}  // extern "C"
