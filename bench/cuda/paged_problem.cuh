// A batch over pages with a backend and its plan, made and run as an engine would.
#pragma once

#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <attune/batch.hpp>
#include <attune/validate.hpp>

#include "backends/flashinfer/descriptor.hpp"
#include "backends/shared/cuda/paged_attention.hpp"
#include "backends/triton/descriptor.hpp"
#include "bench/cuda/harness.hpp"
#include "bench/cuda/paged_shape.hpp"

namespace attune::bench {

template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().text().c_str());
    std::exit(1);
  }
  return std::move(*result);
}
inline void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.text().c_str());
  std::exit(1);
}

/// NaN, in every type, where a row of a cache holds no key.
template <class Kv>
__global__ void poison_rows(const std::uint8_t* used, Kv* rows, int dim) {
  if (used[blockIdx.x] != 0) return;
  auto* bytes = reinterpret_cast<std::uint8_t*>(rows + std::size_t{blockIdx.x} * dim);
  for (std::size_t i = threadIdx.x; i < dim * sizeof(Kv); i += blockDim.x) bytes[i] = 0xff;
}

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return DType::bf16;
  if constexpr (std::is_same_v<T, __half>) return DType::f16;
  if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) return DType::fp8_e4m3;
  if constexpr (std::is_same_v<T, __nv_fp8_e5m2>) return DType::fp8_e5m2;
}

/// A batch, its tensors, a backend and its plan.
template <class T, class Kv>
struct Problem {
  Shape s;
  std::vector<int> qo_indptr{0}, kv_indptr{0}, key_indptr{0}, last, indices, request;
  std::vector<std::int64_t> mask_indptr{0}, key_row;
  std::vector<std::uint8_t> mask;
  std::int64_t pages = 3;
  BatchView view;
  Array<T> q, o;
  Array<Kv> k, v;
  Array<float> lse, sinks, slopes;
  Array<std::uint8_t> workspace;
  std::unique_ptr<Backend> backend;
  PlanHandle plan;
  LayerCall call;
  float scale;

  explicit Problem(const Shape& shape) : s(shape), scale(1.0f / std::sqrt(float(shape.dim_qk))) {
    std::mt19937 random(7);
    for (std::size_t i = 0; i < s.qo_len.size(); ++i) {
      const int n = s.kv_len[i], used = (n + s.page - 1) / s.page;
      qo_indptr.push_back(qo_indptr.back() + s.qo_len[i]);
      kv_indptr.push_back(kv_indptr.back() + used);
      key_indptr.push_back(key_indptr.back() + n);
      last.push_back(used == 0 ? 0 : n - (used - 1) * s.page);
      request.insert(request.end(), std::size_t(s.qo_len[i]), int(i));
      const std::size_t bytes = (std::size_t(s.qo_len[i]) * std::size_t(n) + 7) / 8;
      if (s.custom_mask)
        for (std::size_t b = 0; b < bytes; ++b) mask.push_back(std::uint8_t(random() | random()));
      mask_indptr.push_back(std::int64_t(mask.size()));
    }
    pages += kv_indptr.back();
    // Three pages belong to nobody.
    indices.resize(std::size_t(pages));
    std::iota(indices.begin(), indices.end(), 0);
    std::shuffle(indices.begin(), indices.end(), random);
    indices.resize(std::size_t(pages - 3));
    const std::int64_t token_rows = s.hnd ? 1 : s.kv_heads;
    for (std::size_t i = 0; i < s.kv_len.size(); ++i)
      for (int j = 0; j < s.kv_len[i]; ++j)
        key_row.push_back(std::int64_t(indices[std::size_t(kv_indptr[i] + j / s.page)]) * s.page *
                              s.kv_heads +
                          j % s.page * token_rows);
    const auto tokens = std::size_t(qo_indptr.back());
    q = Array<T>(tokens * s.qo_heads * s.dim_qk);
    o = Array<T>(tokens * s.qo_heads * s.dim_vo);
    lse = Array<float>(tokens * s.qo_heads);
    k = Array<Kv>(std::size_t(pages) * s.page * s.kv_heads * s.dim_qk);
    v = Array<Kv>(std::size_t(pages) * s.page * s.kv_heads * s.dim_vo);
    sinks = Array<float>(std::size_t(s.qo_heads));
    randomise(q, 1);
    randomise(k, 2);
    randomise(v, 3);
    randomise(sinks, 4);
    std::vector<float> slope;
    for (int h = 0; h < s.qo_heads; ++h) slope.push_back(std::exp2(-8.0f * (h + 1) / s.qo_heads));
    slopes = Array<float>(slope);
    make();
  }

  void make() {
    BackendContext context;
    AttentionSpec& spec = context.spec;
    spec.num_qo_heads = s.qo_heads;
    spec.num_kv_heads = s.kv_heads;
    spec.head_dim_qk = s.dim_qk;
    spec.head_dim_vo = s.dim_vo;
    spec.sm_scale = scale;
    spec.causal = s.causal;
    spec.window_left = s.window_left;
    spec.logits_soft_cap = s.soft_cap;
    spec.sinks = s.sinks;
    spec.alibi = s.alibi;
    spec.custom_mask = s.custom_mask;
    spec.q_dtype = spec.o_dtype = dtype_of<T>();
    spec.kv_dtype = dtype_of<Kv>();
    context.device.kind = DeviceKind::cuda;
    context.page_size = s.page;
    context.kv_layout = s.hnd ? KvLayout::hnd : KvLayout::nhd;
    // Only flashinfer's name stands for ALiBi.
    backend = must(backends::shared::make_paged_attention(
        context,
        s.alibi || s.hopper ? backends::flashinfer::kDescriptor : backends::triton::kDescriptor,
        {.hopper = s.hopper, .keys = s.keys}));
    view.form = BatchForm::extend;
    view.page_size = s.page;
    view.qo_indptr = qo_indptr;
    view.kv_indptr = kv_indptr;
    view.kv_indices = indices;
    view.kv_last_page_len = last;
    if (s.custom_mask) {
      view.custom_mask = mask;
      view.custom_mask_indptr = mask_indptr;
    }
    workspace =
        Array<std::uint8_t>(backend->workspace_size(attention::bounds_of(view)).device_bytes);
    plan = must(
        backend->plan(view, {.device = workspace.get(), .device_bytes = workspace.size()}, {}));
    const std::int64_t tokens = qo_indptr.back();
    call.q = TensorView::dense(q.get(), dtype_of<T>(), {tokens, s.qo_heads, s.dim_qk});
    call.o = TensorView::dense(o.get(), dtype_of<T>(), {tokens, s.qo_heads, s.dim_vo});
    call.lse = TensorView::dense(lse.get(), DType::f32, {tokens, s.qo_heads});
    const auto cache = [&](Kv* data, int dim) {
      return s.hnd ? TensorView::dense(data, dtype_of<Kv>(), {pages, s.kv_heads, s.page, dim})
                   : TensorView::dense(data, dtype_of<Kv>(), {pages, s.page, s.kv_heads, dim});
    };
    call.k_cache = cache(k.get(), s.dim_qk);
    call.v_cache = cache(v.get(), s.dim_vo);
    if (s.sinks) call.sinks = sinks.get();
    if (s.alibi) call.alibi_slopes = slopes.get();
  }

  /// NaN in every slot that holds no key.
  void poison() {
    std::vector<std::uint8_t> used(k.size() / std::size_t(s.dim_qk));
    for (const std::int64_t row : key_row)
      for (int h = 0; h < s.kv_heads; ++h) used[std::size_t(row + h * (s.hnd ? s.page : 1))] = 1;
    const Array<std::uint8_t> marks(used);
    poison_rows<<<unsigned(used.size()), 32>>>(marks.get(), k.get(), s.dim_qk);
    poison_rows<<<unsigned(used.size()), 32>>>(marks.get(), v.get(), s.dim_vo);
    check(cudaDeviceSynchronize(), "poison");
    o.fill_bytes(0xff);
    lse.fill_bytes(0xff);
  }

  void run(cudaStream_t stream) { must(backend->run(*plan, call, {.handle = stream})); }

  [[nodiscard]] double flops() const {
    double pairs = 0;
    for (std::size_t i = 0; i < s.qo_len.size(); ++i) {
      const double q_len = s.qo_len[i], n = s.kv_len[i];
      pairs += s.causal ? q_len * (n - q_len) + q_len * q_len / 2 : q_len * n;
    }
    return 2.0 * pairs * s.qo_heads * (s.dim_qk + s.dim_vo);
  }
};

}  // namespace attune::bench
