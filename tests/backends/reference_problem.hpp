// One request for the oracle, in whatever layout and page size.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <attune/validate.hpp>

#include "backends/reference/descriptor.hpp"
#include "tensor/element.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::backends::reference::test {

/// One request with everything it needs; values as doubles.
struct Problem {
  AttentionSpec spec{.num_qo_heads = 1,
                     .num_kv_heads = 1,
                     .head_dim_qk = 1,
                     .head_dim_vo = 1,
                     .sm_scale = 1.0f,
                     .q_dtype = DType::f32,
                     .o_dtype = DType::f32,
                     .kv_dtype = DType::f32};
  std::int32_t qo_len = 1;
  std::int32_t kv_len = 0;
  std::int64_t offset = 0;
  std::vector<double> q, k, v;
  std::vector<float> sinks, slopes, k_scales, v_scales;
  std::vector<std::uint8_t> mask;
  float q_scale = 1.0f;
  float k_scale = 1.0f;
  float v_scale = 1.0f;
};

struct Answer {
  std::vector<float> o;
  std::vector<float> lse;
};

/// Where keys lie in memory.
struct Placement {
  KvSource source = KvSource::paged;
  KvLayout layout = KvLayout::nhd;
  std::int32_t page_size = 4;
};

inline std::vector<char> encode(const std::vector<double>& values, DType dtype) {
  std::vector<char> bytes(values.size() * size_of(dtype) + 1);
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor::store_element(bytes.data(), dtype, static_cast<std::int64_t>(i), values[i]);
  return bytes;
}

/// Every byte 0xff: NaN in all float formats, -1 in int8.
inline std::vector<char> poison(std::int64_t bytes) {
  return std::vector<char>(static_cast<std::size_t>(bytes), static_cast<char>(0xff));
}

inline Answer solve(const Problem& p, const Placement& place) {
  AttentionSpec spec = p.spec;
  spec.kv_scales = true;
  spec.custom_mask = !p.mask.empty();
  spec.sinks = !p.sinks.empty();
  spec.alibi = !p.slopes.empty();
  spec.per_head_scales = !p.k_scales.empty();
  const BackendContext context{
      .spec = spec, .page_size = place.page_size, .kv_layout = place.layout};
  auto backend = make(context);
  EXPECT_TRUE(backend.ok()) << backend.status().text();

  // Pages in falling order, every second one unused.
  const std::int32_t pages = (p.kv_len + place.page_size - 1) / place.page_size;
  std::vector<std::int32_t> indices;
  for (std::int32_t i = 0; i < pages; ++i) indices.push_back(2 * (pages - i));
  const std::vector<std::int32_t> qo_indptr{0, p.qo_len};
  const bool ragged = place.source == KvSource::ragged;
  const std::vector<std::int32_t> kv_indptr{0, ragged ? p.kv_len : pages};
  const std::vector<std::int32_t> last{pages == 0 ? 0 : p.kv_len - (pages - 1) * place.page_size};
  const std::vector<std::int64_t> kv_offset{p.offset};
  const std::vector<std::int64_t> mask_indptr{0, static_cast<std::int64_t>(p.mask.size())};
  BatchView batch{.form = BatchForm::extend,
                  .source = place.source,
                  .page_size = place.page_size,
                  .qo_indptr = qo_indptr,
                  .kv_indptr = kv_indptr,
                  .kv_offset = kv_offset};
  if (!ragged) {
    batch.kv_indices = indices;
    batch.kv_last_page_len = last;
  }
  if (spec.custom_mask) {
    batch.custom_mask = p.mask;
    batch.custom_mask_indptr = mask_indptr;
  }

  const tensor::KvShape shape{.layout = place.layout,
                              .dtype = spec.kv_dtype,
                              .page_size = place.page_size,
                              .num_kv_heads = spec.num_kv_heads,
                              .head_dim_qk = spec.head_dim_qk,
                              .head_dim_vo = spec.head_dim_vo};
  const std::int64_t pool = 2 * pages + 2;
  std::vector<char> k_pool = poison(pool * tensor::k_page_bytes(shape));
  std::vector<char> v_pool = poison(pool * tensor::v_page_bytes(shape) + 1);
  std::vector<char> k_rows = encode(p.k, spec.kv_dtype);
  std::vector<char> v_rows = encode(p.v, spec.kv_dtype);
  LayerCall call{.k_cache = tensor::k_cache_view(k_pool.data(), shape, pool),
                 .v_cache = tensor::v_cache_view(v_pool.data(), shape, pool)};
  if (spec.variant == Variant::mla) call.v_cache = {};
  const auto place_row = [&](const TensorView& cache, const std::vector<char>& rows, int width,
                             std::int64_t j, std::int64_t h) {
    const std::int64_t page = indices[static_cast<std::size_t>(j / place.page_size)];
    const std::int64_t in_page = j % place.page_size;
    std::int64_t at = page * cache.stride[0];
    if (place.layout == KvLayout::hnd) {
      at += h * cache.stride[1] + in_page * cache.stride[2];
    } else {
      at += in_page * cache.stride[1] + (cache.rank == 4 ? h * cache.stride[2] : 0);
    }
    const auto size = static_cast<std::int64_t>(size_of(spec.kv_dtype));
    std::memcpy(static_cast<char*>(cache.data) + at * size,
                rows.data() + (j * spec.num_kv_heads + h) * width * size,
                static_cast<std::size_t>(width * size));
  };
  for (std::int64_t j = 0; j < p.kv_len; ++j) {
    for (std::int64_t h = 0; h < spec.num_kv_heads; ++h) {
      place_row(call.k_cache, k_rows, spec.head_dim_qk, j, h);
      if (spec.variant == Variant::gqa) place_row(call.v_cache, v_rows, spec.head_dim_vo, j, h);
    }
  }
  call.k = TensorView::dense(k_rows.data(), spec.kv_dtype,
                             {p.kv_len, spec.num_kv_heads, spec.head_dim_qk});
  call.v = TensorView::dense(v_rows.data(), spec.kv_dtype,
                             {p.kv_len, spec.num_kv_heads, spec.head_dim_vo});

  std::vector<char> q = encode(p.q, DType::f32);
  Answer answer{
      .o = std::vector<float>(
          static_cast<std::size_t>(p.qo_len * spec.num_qo_heads * spec.head_dim_vo), std::nanf("")),
      .lse = std::vector<float>(static_cast<std::size_t>(p.qo_len * spec.num_qo_heads),
                                std::nanf(""))};
  call.q = TensorView::dense(q.data(), DType::f32, {p.qo_len, spec.num_qo_heads, spec.head_dim_qk});
  call.o = TensorView::dense(answer.o.data(), DType::f32,
                             {p.qo_len, spec.num_qo_heads, spec.head_dim_vo});
  call.lse = TensorView::dense(answer.lse.data(), DType::f32, {p.qo_len, spec.num_qo_heads});
  call.q_scale = p.q_scale;
  call.k_scale = p.k_scale;
  call.v_scale = p.v_scale;
  if (spec.sinks) call.sinks = p.sinks.data();
  if (spec.alibi) call.alibi_slopes = p.slopes.data();
  if (spec.per_head_scales) {
    call.k_scale_per_head = p.k_scales.data();
    call.v_scale_per_head = p.v_scales.data();
  }

  const WorkspaceSize size = (*backend)->workspace_size(attention::bounds_of(batch));
  struct alignas(256) Line {
    char bytes[256];
  };
  std::vector<Line> memory(size.device_bytes / sizeof(Line) + 1);
  auto plan =
      (*backend)->plan(batch, {.device = memory.data(), .device_bytes = size.device_bytes}, {});
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  const Status status = (*backend)->run(**plan, call, {});
  EXPECT_TRUE(status.ok()) << status.text();
  return answer;
}

}  // namespace attune::backends::reference::test
