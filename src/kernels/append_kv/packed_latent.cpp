#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention/packed_latent.hpp"
#include "kernels/append_kv/append_kv.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::kernels::append_kv {
namespace {

namespace packed = attention::packed_latent;

/// The exponent of the least power of two with which `largest` does not exceed 448 = 0.875 * 2^9.
int scale_exponent(float largest) {
  if (!(largest > 0.0f)) return packed::kLeastScaleExponent;
  int exponent = 0;
  const float digits = std::frexp(largest, &exponent);
  return std::max(exponent - 9 + (digits > 0.875f ? 1 : 0), packed::kLeastScaleExponent);
}

template <class From>
void pack_row(const void* from, float k_scale, char* token) {
  const From* const in = static_cast<const From*>(from);
  const auto value = [&](int d) { return tensor::to_float(in[d]) / k_scale; };
  for (int block = 0; block < packed::kScales; ++block) {
    const int first = block * packed::kScaleBlock;
    float largest = 0.0f;
    for (int d = first; d < first + packed::kScaleBlock; ++d)
      largest = std::max(largest, std::fabs(value(d)));
    const int exponent = scale_exponent(largest);
    for (int d = first; d < first + packed::kScaleBlock; ++d) {
      const auto narrow = tensor::round_to<tensor::E4m3>(std::ldexp(value(d), -exponent));
      std::memcpy(token + d, &narrow, 1);
    }
    const float scale = std::ldexp(1.0f, exponent);
    std::memcpy(token + packed::kScalesAt + 4 * block, &scale, sizeof scale);
  }
  for (int i = 0; i < packed::kRope; ++i) {
    const tensor::Bf16 rope = tensor::to_bf16(value(packed::kLatents + i));
    std::memcpy(token + packed::kRopeAt + 2 * i, &rope, sizeof rope);
  }
}

using PackRow = void (*)(const void*, float, char*);

PackRow packer(DType from) {
  switch (from) {
    case DType::f32: return pack_row<float>;
    case DType::bf16: return pack_row<tensor::Bf16>;
    case DType::f16: return pack_row<tensor::F16>;
    default: return nullptr;
  }
}

}  // namespace

void run_packed(const Params& p, std::int64_t first, std::int64_t last) {
  const auto in_bytes = static_cast<std::int64_t>(size_of(p.in_dtype));
  const PackRow pack = packer(p.in_dtype);
  for (std::int64_t token = first; token < last; ++token) {
    const std::int64_t slot = p.slot_mapping[token];
    if (slot < 0) continue;
    pack(static_cast<const char*>(p.in) + token * p.in_token_stride * in_bytes, p.scale,
         static_cast<char*>(p.cache) + slot / p.page_size * p.page_stride +
             slot % p.page_size * p.token_stride);
  }
}

}  // namespace attune::kernels::append_kv
