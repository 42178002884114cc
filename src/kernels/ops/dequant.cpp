#include "kernels/ops/dequant.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/ops/quant_blocks.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::kernels::ops {
namespace {

std::uint16_t u16(const std::byte* p) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

void dequantise_block(const BlockForm& form, const QuantBlock& block, std::int64_t count,
                      float* out) {
  const float d = tensor::to_float(tensor::F16{block.d});
  const float m = tensor::to_float(tensor::F16{block.m});
  for (std::int64_t first = 0; first < count; first += form.group) {
    const auto g = static_cast<std::size_t>(first / form.group);
    float scale = d;
    float min = m;
    if (form.group_scales) {
      scale = d * static_cast<float>(block.scales[g]);
      min = form.has_min ? -m * static_cast<float>(block.mins[g]) : 0.0f;
    }
    for (std::int64_t i = first; i < first + form.group; ++i)
      out[i] = scale * static_cast<float>(block.digits[i] - form.zero) + min;
  }
}

}  // namespace

void dequantise(WeightType type, const std::byte* data, std::int64_t count, float* out) {
  if (count == 0) return;
  switch (type) {
    case WeightType::f32:
      std::memcpy(out, data, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case WeightType::f16:
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = tensor::to_float(tensor::F16{u16(data + 2 * i)});
      return;
    case WeightType::bf16:
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = tensor::to_float(tensor::Bf16{u16(data + 2 * i)});
      return;
    default: break;
  }
  const BlockSize size = block_size(type);
  const BlockForm form = block_form(type);
  QuantBlock block;
  for (std::int64_t i = 0; i < count; i += size.per_block, data += size.bytes_per_block) {
    take_apart(type, data, block);
    dequantise_block(form, block, size.per_block, out + i);
  }
}

void dequantise_bf16(WeightType type, const std::byte* data, std::int64_t count,
                     std::uint16_t* out) {
  if (count == 0) return;
  if (type == WeightType::bf16) {
    std::memcpy(out, data, static_cast<std::size_t>(count) * sizeof(std::uint16_t));
    return;
  }
  std::array<float, kMaxBlock> values;
  for (std::int64_t i = 0; i < count; i += kMaxBlock) {
    const std::int64_t n = std::min<std::int64_t>(kMaxBlock, count - i);
    dequantise(type, data + row_bytes(type, i), n, values.data());
    for (std::int64_t j = 0; j < n; ++j)
      out[i + j] = tensor::to_bf16(values[static_cast<std::size_t>(j)]).bits;
  }
}

}  // namespace attune::kernels::ops
