#include "backends/reference/kv_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tensor/element.hpp"

namespace attune::backends::reference {
namespace {

// The 656-byte row of mla_latent_fp8: 512 e4m3, one fp32 scale per 128 of them, 64 bf16.
constexpr int kLatent = 512;
constexpr int kRope = 64;
constexpr int kBlock = 128;
constexpr std::int64_t kScalesAt = kLatent;
constexpr std::int64_t kRopeAt = kLatent + kLatent / kBlock * 4;

/// Power-of-two scales, so that a reader that rounds the scale to bf16 loses nothing.
void write_latent_fp8(char* bytes, const double* row) {
  constexpr double kLargest = 448.0;
  constexpr double kLeastScale = 1e-4;
  for (int block = 0; block < kLatent / kBlock; ++block) {
    const double* x = row + static_cast<std::ptrdiff_t>(block) * kBlock;
    double largest = 0.0;
    for (int d = 0; d < kBlock; ++d) largest = std::max(largest, std::fabs(x[d]));
    const double scale = std::exp2(std::ceil(std::log2(std::max(largest / kLargest, kLeastScale))));
    for (int d = 0; d < kBlock; ++d)
      tensor::store_element(bytes, DType::fp8_e4m3, block * kBlock + d, x[d] / scale);
    tensor::store_element(bytes + kScalesAt, DType::f32, block, scale);
  }
  for (int d = 0; d < kRope; ++d)
    tensor::store_element(bytes + kRopeAt, DType::bf16, d, row[kLatent + d]);
}

/// What each code of an 8-bit type stands for.
template <class T>
constexpr std::array<float, 256> kValues = [] {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code)
    values[code] = tensor::to_float(T{static_cast<std::uint8_t>(code)});
  return values;
}();

template <class T>
double value_of(T x) {
  if constexpr (std::is_same_v<T, tensor::E4m3> || std::is_same_v<T, tensor::E5m2>) {
    return kValues<T>[x.bits];
  } else {
    return tensor::to_float(x);
  }
}

template <class T>
void read_as(const void* data, std::int64_t at, int width, double* row) {
  for (int d = 0; d < width; ++d) row[d] = value_of(tensor::detail::read<T>(data, at + d));
}

void read_latent_fp8(const char* bytes, int width, double* row) {
  const int latents = std::min(width, kLatent);
  read_as<tensor::E4m3>(bytes, 0, latents, row);
  for (int d = 0; d < latents; ++d)
    row[d] *= tensor::detail::read<float>(bytes + kScalesAt, d / kBlock);
  if (width > kLatent) read_as<tensor::Bf16>(bytes + kRopeAt, 0, width - kLatent, row + kLatent);
}

void read_elements(const void* data, DType dtype, std::int64_t at, int width, double* row) {
  switch (dtype) {
    case DType::f32: return read_as<float>(data, at, width, row);
    case DType::bf16: return read_as<tensor::Bf16>(data, at, width, row);
    case DType::f16: return read_as<tensor::F16>(data, at, width, row);
    case DType::fp8_e4m3: return read_as<tensor::E4m3>(data, at, width, row);
    case DType::fp8_e5m2: return read_as<tensor::E5m2>(data, at, width, row);
    default: break;
  }
  for (int d = 0; d < width; ++d) row[d] = tensor::load_element(data, dtype, at + d);
}

KvRows cache_rows(const TensorView& cache, const AttentionSpec& spec, KvLayout layout, int width) {
  const bool hnd = layout == KvLayout::hnd;
  const bool apart = tensor::stores_v_apart(layout);
  return {.data = cache.data,
          .dtype = spec.kv_dtype,
          .latent_fp8 = layout == KvLayout::mla_latent_fp8,
          .width = width,
          .page_size = cache.shape[hnd ? 2 : 1],
          .page_stride = cache.stride[0],
          .token_stride = cache.stride[hnd ? 2 : 1],
          .head_stride = apart ? cache.stride[hnd ? 1 : 2] : 0};
}

KvRows token_rows(const TensorView& tokens, int width) {
  return {.data = tokens.data,
          .dtype = tokens.dtype,
          .width = width,
          .page_stride = tokens.stride[0],
          .head_stride = tokens.stride[1]};
}

}  // namespace

std::int64_t KvRows::offset(std::int64_t slot, std::int64_t head) const {
  return slot / page_size * page_stride + slot % page_size * token_stride + head * head_stride;
}

void KvRows::read(std::int64_t slot, std::int64_t head, double* row) const {
  if (latent_fp8)
    return read_latent_fp8(static_cast<const char*>(data) + offset(slot, head), width, row);
  read_elements(data, dtype, offset(slot, head), width, row);
}

void KvRows::write(std::int64_t slot, std::int64_t head, const TensorView& tokens,
                   std::int64_t token, double scale) const {
  const std::int64_t from = token * tokens.stride[0] + head * tokens.stride[1];
  const auto value = [&](int d) {
    return tensor::load_element(tokens.data, tokens.dtype, from + d) / scale;
  };
  if (latent_fp8) {
    std::array<double, kLatent + kRope> row{};
    for (int d = 0; d < kLatent + kRope; ++d) row[static_cast<std::size_t>(d)] = value(d);
    return write_latent_fp8(static_cast<char*>(data) + offset(slot, head), row.data());
  }
  constexpr double kLargestE5m2 = 57344.0;
  const std::int64_t to = offset(slot, head);
  for (int d = 0; d < width; ++d) {
    const double x = value(d);
    const bool saturates = dtype == DType::fp8_e5m2 && x == x;
    tensor::store_element(data, dtype, to + d,
                          saturates ? std::clamp(x, -kLargestE5m2, kLargestE5m2) : x);
  }
}

KvRows key_rows(const LayerCall& call, const AttentionSpec& spec, KvLayout layout) {
  return cache_rows(call.k_cache, spec, layout, spec.head_dim_qk);
}

KvRows value_rows(const LayerCall& call, const AttentionSpec& spec, KvLayout layout) {
  return cache_rows(tensor::stores_v_apart(layout) ? call.v_cache : call.k_cache, spec, layout,
                    spec.head_dim_vo);
}

KvRows ragged_key_rows(const LayerCall& call, const AttentionSpec& spec) {
  return token_rows(call.k, spec.head_dim_qk);
}

KvRows ragged_value_rows(const LayerCall& call, const AttentionSpec& spec) {
  return token_rows(is_latent(spec.variant) ? call.k : call.v, spec.head_dim_vo);
}

KvRows vector_rows(const TensorView& vectors, bool ragged) {
  KvRows rows{.data = vectors.data,
              .dtype = vectors.dtype,
              .width = static_cast<int>(vectors.shape[ragged ? 1 : 2]),
              .page_stride = vectors.stride[0]};
  if (ragged) return rows;
  rows.page_size = vectors.shape[1];
  rows.token_stride = vectors.stride[1];
  return rows;
}

void read_row(const TensorView& tensor, std::int64_t token, std::int64_t head, int width,
              double* row) {
  read_elements(tensor.data, tensor.dtype, token * tensor.stride[0] + head * tensor.stride[1],
                width, row);
}

}  // namespace attune::backends::reference
