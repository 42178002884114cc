// Shared prefixes on a card: the backend's levels beside reading request by request, both through
// plan() and run(). Checks that both agree, then times them with the cache full of other data.
//
//   attune_cascade_bench [verify] [time] [row N]
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>

#include <attune/batch.hpp>

#include "backends/flashinfer/descriptor.hpp"
#include "backends/shared/cuda/paged_attention.hpp"
#include "bench/cuda/harness.hpp"

namespace attune::bench {
namespace {

template <class T>
T must(Result<T> result, const char* what) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s: %s\n", what, result.status().text().c_str());
    std::exit(1);
  }
  return std::move(*result);
}
void must(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.text().c_str());
  std::exit(1);
}

struct Shape {
  int requests = 64;
  int shared = 32768;
  int own = 1024;
  int qo_heads = 32;
  int kv_heads = 8;
  int page_size = 64;
  int dim = 128;
};

/// One batch of decodes over the same leading pages, pages in random order.
struct Problem {
  Shape s;
  std::vector<std::int32_t> qo_indptr{0}, kv_indptr{0}, indices, last;
  std::vector<PrefixGroup> groups;
  BatchView view;
  Array<__nv_bfloat16> q, k, v;

  explicit Problem(const Shape& shape) : s(shape) {
    const int shared_pages = s.shared / s.page_size;
    const int own_pages = (s.own + s.page_size - 1) / s.page_size;
    const int pages = shared_pages + s.requests * own_pages;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(pages));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(1));
    for (int r = 0; r < s.requests; ++r) {
      for (int i = 0; i < shared_pages; ++i) indices.push_back(ids[i]);
      for (int i = 0; i < own_pages; ++i) indices.push_back(ids[shared_pages + r * own_pages + i]);
      kv_indptr.push_back(static_cast<std::int32_t>(indices.size()));
      qo_indptr.push_back(r + 1);
      last.push_back(own_pages == 0 ? s.page_size : s.own - (own_pages - 1) * s.page_size);
    }
    groups = {{0, s.requests, shared_pages}};
    const std::size_t cache = std::size_t(pages) * s.page_size * s.kv_heads * s.dim;
    k = Array<__nv_bfloat16>(cache);
    v = Array<__nv_bfloat16>(cache);
    q = Array<__nv_bfloat16>(std::size_t(s.requests) * s.qo_heads * s.dim);
    randomise(k, 1);
    randomise(v, 2);
    randomise(q, 3);
    check(cudaDeviceSynchronize(), "data");
    view.form = BatchForm::decode;
    view.page_size = s.page_size;
    view.qo_indptr = qo_indptr;
    view.kv_indptr = kv_indptr;
    view.kv_indices = indices;
    view.kv_last_page_len = last;
    view.prefix_groups = groups;
  }

  [[nodiscard]] double cascade_bytes() const {
    return (s.shared + double(s.requests) * s.own) * s.kv_heads * s.dim * 4;
  }
  [[nodiscard]] double flops() const { return 4.0 * s.requests * s.qo_heads * s.dim * s.shared; }
};

/// A backend, its plan and what it writes.
struct Runner {
  std::unique_ptr<Backend> backend;
  PlanHandle plan;
  Array<std::uint8_t> workspace;
  Array<__nv_bfloat16> o;
  Array<float> lse;
  LayerCall call;

  Runner(const Problem& p, plan::CascadeMode mode) {
    const Shape& s = p.s;
    BackendContext context;
    context.spec.num_qo_heads = s.qo_heads;
    context.spec.num_kv_heads = s.kv_heads;
    context.spec.head_dim_qk = context.spec.head_dim_vo = s.dim;
    context.spec.sm_scale = 1.0f / std::sqrt(float(s.dim));
    context.spec.causal = true;
    context.spec.q_dtype = context.spec.kv_dtype = context.spec.o_dtype = DType::bf16;
    context.device.kind = DeviceKind::cuda;
    context.page_size = s.page_size;
    backend =
        must(backends::shared::make_paged_attention(context, backends::flashinfer::kDescriptor,
                                                    {.cascade = mode, .hopper = true}),
             "backend");
    const BatchBounds bounds{.max_batch = s.requests,
                             .max_qo_tokens = s.requests,
                             .max_kv_entries = std::int64_t(p.indices.size()),
                             .max_kv_len = s.shared + s.own,
                             .page_size = s.page_size,
                             .decode_only = true};
    workspace = Array<std::uint8_t>(backend->workspace_size(bounds).device_bytes);
    plan = must(
        backend->plan(p.view, {.device = workspace.get(), .device_bytes = workspace.size()}, {}),
        "plan");
    o = Array<__nv_bfloat16>(p.q.size());
    lse = Array<float>(std::size_t(s.requests) * s.qo_heads);
    o.fill_bytes(0xff);
    lse.fill_bytes(0xff);
    const std::int64_t pages = std::int64_t(p.k.size()) / s.page_size / s.kv_heads / s.dim;
    call.q = TensorView::dense(p.q.get(), DType::bf16, {s.requests, s.qo_heads, s.dim});
    call.o = TensorView::dense(o.get(), DType::bf16, {s.requests, s.qo_heads, s.dim});
    call.lse = TensorView::dense(lse.get(), DType::f32, {s.requests, s.qo_heads});
    call.k_cache =
        TensorView::dense(p.k.get(), DType::bf16, {pages, s.page_size, s.kv_heads, s.dim});
    call.v_cache =
        TensorView::dense(p.v.get(), DType::bf16, {pages, s.page_size, s.kv_heads, s.dim});
  }
  void run(cudaStream_t stream) { must(backend->run(*plan, call, {.handle = stream}), "run"); }
};

void verify(const Shape& s) {
  const Problem p(s);
  Runner flat(p, plan::CascadeMode::off);
  Runner levels(p, plan::CascadeMode::always);
  flat.run({});
  for (int round = 0; round < 3; ++round) levels.run({});
  check(cudaDeviceSynchronize(), "verify");
  const auto a = flat.o.download();
  const auto b = levels.o.download();
  const auto la = flat.lse.download();
  const auto lb = levels.lse.download();
  double difference = 0, norm = 0, lse = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = float(a[i]), y = float(b[i]);
    difference += (x - y) * (x - y);
    norm += x * x;
  }
  for (std::size_t i = 0; i < la.size(); ++i) lse = std::fmax(lse, std::fabs(la[i] - lb[i]));
  const double error = std::sqrt(difference / norm);
  std::printf("%s %d x (%d + %d) %d/%d page %d: o %.2e lse %.2e\n",
              error < 5e-3 && lse < 5e-3 ? "ok  " : "FAIL", s.requests, s.shared, s.own, s.qo_heads,
              s.kv_heads, s.page_size, error, lse);
}

void time(const Shape& s) {
  const Problem p(s);
  Runner flat(p, plan::CascadeMode::off);
  Runner chosen(p, plan::CascadeMode::by_cost);
  Runner levels(p, plan::CascadeMode::always);
  const auto us = [](Runner& r) {
    return 1e6 * time_cold([&](cudaStream_t stream) { r.run(stream); });
  };
  const double f = us(flat), c = us(chosen), l = us(levels);
  std::printf(
      "%4d x (%5d + %4d) %d/%d page %2d: flat %8.1f us, levels %7.1f us = %5.2f x, chosen %7.1f us;"
      " bytes %6.1f us at 4.5 TB/s, products %6.1f us at 700 TFLOP/s\n",
      s.requests, s.shared, s.own, s.qo_heads, s.kv_heads, s.page_size, f, l, f / l, c,
      p.cascade_bytes() / 4.5e6, p.flops() / 700e6);
  std::fflush(stdout);
}

}  // namespace
}  // namespace attune::bench

int main(int argc, char** argv) {
  using namespace attune::bench;
  const auto asked = [&](const char* word) { return asks_for(argc, argv, word); };
  const Shape goal;
  if (asked("verify")) {
    verify(goal);
    verify({.requests = 3, .shared = 192, .own = 1});
    verify({.requests = 64, .shared = 4096, .own = 100, .page_size = 16});
    verify({.requests = 37, .shared = 1000, .own = 77, .page_size = 1});
    verify({.requests = 200, .shared = 2048, .own = 0, .qo_heads = 64});
    verify({.requests = 17, .shared = 8192, .own = 300, .qo_heads = 8, .page_size = 8});
    verify({.requests = 9, .shared = 640, .own = 64, .qo_heads = 24});
    verify({.requests = 512, .shared = 4096, .own = 33});
  }
  if (argc > 1 && std::strcmp(argv[1], "goal") == 0) {
    time(goal);
    time({.requests = 256});
    return 0;
  }
  if (asked("time")) {
    time(goal);
    time({.requests = 256});
    time({.requests = 256, .own = 16});
    for (const int requests : {2, 3, 4, 8, 16, 32}) time({.requests = requests});
    for (const int shared : {512, 1024, 2048, 4096}) time({.shared = shared, .own = 256});
    for (const int requests : {2, 4, 8, 16}) time({.requests = requests, .shared = 4096});
    time({.qo_heads = 64});
    time({.page_size = 16});
    time({.page_size = 1});
  }
  return 0;
}
