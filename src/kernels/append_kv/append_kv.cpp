#include "kernels/append_kv/append_kv.hpp"

#include <cstring>

#include "tensor/narrow_float.hpp"

namespace attune::kernels::append_kv {
namespace {

using tensor::Bf16;
using tensor::E4m3;
using tensor::E5m2;
using tensor::F16;

template <class To>
To convert(float x) {
  return tensor::round_to<To>(x);
}
template <>
float convert<float>(float x) {
  return x;
}
template <>
Bf16 convert<Bf16>(float x) {
  return tensor::to_bf16(x);
}

template <class From, class To>
void convert_row(const void* from, void* to, int n, float scale) {
  const From* const in = static_cast<const From*>(from);
  To* const out = static_cast<To*>(to);
  // Division, not multiplication by 1 / scale: the stored number is the nearest one.
  for (int i = 0; i < n; ++i) out[i] = convert<To>(tensor::to_float(in[i]) / scale);
}

using ConvertRow = void (*)(const void*, void*, int, float);

template <class From>
ConvertRow to_dtype(DType to) {
  switch (to) {
    case DType::f32: return convert_row<From, float>;
    case DType::bf16: return convert_row<From, Bf16>;
    case DType::f16: return convert_row<From, F16>;
    case DType::fp8_e4m3: return convert_row<From, E4m3>;
    case DType::fp8_e5m2: return convert_row<From, E5m2>;
    case DType::i8: return convert_row<From, std::int8_t>;
    default: return nullptr;
  }
}

ConvertRow converter(DType from, DType to) {
  switch (from) {
    case DType::f32: return to_dtype<float>(to);
    case DType::bf16: return to_dtype<Bf16>(to);
    case DType::f16: return to_dtype<F16>(to);
    default: return nullptr;
  }
}

}  // namespace

void run(const Params& p, std::int64_t first, std::int64_t last) {
  const auto in_bytes = static_cast<std::int64_t>(size_of(p.in_dtype));
  const auto out_bytes = static_cast<std::int64_t>(size_of(p.cache_dtype));
  const bool copy = p.in_dtype == p.cache_dtype && p.scale == 1.0f && p.scale_per_head == nullptr;
  const ConvertRow convert = copy ? nullptr : converter(p.in_dtype, p.cache_dtype);
  for (std::int64_t token = first; token < last; ++token) {
    std::int64_t slot = p.slot_mapping[token];
    if (slot < 0 || slot % p.tokens_per_row != p.tokens_per_row - 1) continue;
    slot /= p.tokens_per_row;
    const std::int64_t place =
        slot / p.page_size * p.page_stride + slot % p.page_size * p.token_stride;
    for (int head = 0; head < p.num_heads; ++head) {
      const char* const in = static_cast<const char*>(p.in) +
                             (token * p.in_token_stride + head * p.in_head_stride) * in_bytes;
      char* const out = static_cast<char*>(p.cache) + (place + head * p.head_stride) * out_bytes;
      if (copy)
        std::memcpy(out, in, static_cast<std::size_t>(p.head_dim * out_bytes));
      else
        convert(in, out, p.head_dim, p.scale_per_head ? p.scale_per_head[head] : p.scale);
    }
  }
}

}  // namespace attune::kernels::append_kv
