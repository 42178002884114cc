#include "kernels/ops/dequant.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/narrow_float.hpp"

namespace attune::kernels::ops {
namespace {

// Blocks of 32: a scale, perhaps a minimum, and the digits. The low halves of the digit bytes are
// numbers 0 to 15 of the block, the high halves 16 to 31. Blocks of 256 ("K"): 8 or 16 groups with
// small scales of their own under one fp16 scale.

std::uint8_t u8(const std::byte* p) { return std::to_integer<std::uint8_t>(*p); }
std::int8_t i8(const std::byte* p) { return static_cast<std::int8_t>(u8(p)); }

std::uint16_t u16(const std::byte* p) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

float f16(const std::byte* p) { return tensor::to_float(tensor::F16{u16(p)}); }

void q4_0(const std::byte* block, float* out) {
  const float d = f16(block);
  for (int i = 0; i < 16; ++i) {
    const int digits = u8(block + 2 + i);
    out[i] = d * static_cast<float>((digits & 15) - 8);
    out[i + 16] = d * static_cast<float>((digits >> 4) - 8);
  }
}

void q4_1(const std::byte* block, float* out) {
  const float d = f16(block);
  const float m = f16(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int digits = u8(block + 4 + i);
    out[i] = d * static_cast<float>(digits & 15) + m;
    out[i + 16] = d * static_cast<float>(digits >> 4) + m;
  }
}

/// The fifth bits of 32 numbers, number i in bit i.
std::uint32_t fifth_bits(const std::byte* p) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}
int fifth(std::uint32_t bits, int i) { return static_cast<int>((bits >> i) & 1u) << 4; }

void q5_0(const std::byte* block, float* out) {
  const float d = f16(block);
  const std::uint32_t high = fifth_bits(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int digits = u8(block + 6 + i);
    out[i] = d * static_cast<float>(((digits & 15) | fifth(high, i)) - 16);
    out[i + 16] = d * static_cast<float>(((digits >> 4) | fifth(high, i + 16)) - 16);
  }
}

void q5_1(const std::byte* block, float* out) {
  const float d = f16(block);
  const float m = f16(block + 2);
  const std::uint32_t high = fifth_bits(block + 4);
  for (int i = 0; i < 16; ++i) {
    const int digits = u8(block + 8 + i);
    out[i] = d * static_cast<float>((digits & 15) | fifth(high, i)) + m;
    out[i + 16] = d * static_cast<float>((digits >> 4) | fifth(high, i + 16)) + m;
  }
}

void q8_0(const std::byte* block, float* out) {
  const float d = f16(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(i8(block + 2 + i));
}

// Two halves of 128 numbers; a half keeps its 32 digit bytes four numbers deep: number 32 * j + i
// of the half in bits 2j and 2j + 1 of byte i. Groups of 16 numbers.
void q2_k(const std::byte* block, float* out) {
  const std::byte* scales = block;
  const std::byte* digits = block + 16;
  const float d = f16(block + 80);
  const float dmin = f16(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int depth = i % 128 / 32;
    const int scale = u8(scales + i / 16);
    const int q = (u8(digits + 32 * half + i % 32) >> (2 * depth)) & 3;
    out[i] = d * static_cast<float>(scale & 15) * static_cast<float>(q) -
             dmin * static_cast<float>(scale >> 4);
  }
}

// Digits as in q2_k; a third bit in 32 bytes, number 32 * j + i in bit j of byte i, set = no 4
// subtracted. 16 scales of 6 bits: four low bits of scale s in a half of byte s % 8, two high bits
// in byte 8 + s % 4.
void q3_k(const std::byte* block, float* out) {
  const std::byte* high = block;
  const std::byte* digits = block + 32;
  const std::byte* scales = block + 96;
  const float d = f16(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int s = i / 16;
    const int low = s < 8 ? u8(scales + s) & 15 : u8(scales + s - 8) >> 4;
    const int scale = (low | (((u8(scales + 8 + s % 4) >> (2 * (s / 4))) & 3) << 4)) - 32;
    const int q = (u8(digits + 32 * (i / 128) + i % 32) >> (2 * (i % 128 / 32))) & 3;
    const int borrow = (u8(high + i % 32) >> (i / 32)) & 1 ? 0 : 4;
    out[i] = d * static_cast<float>(scale) * static_cast<float>(q - borrow);
  }
}

// Eight scales and eight minima of 6 bits in 12 bytes: the first four of each in the low 6 bits of
// bytes 0-3 and 4-7; of the others, four bits in bytes 8-11 (low half scale, high half minimum) and
// two in the top bits of bytes 0-3 and 4-7.
struct ScaleAndMin {
  float scale;
  float min;
};
ScaleAndMin k_scale(const std::byte* packed, int group) {
  if (group < 4)
    return {static_cast<float>(u8(packed + group) & 63),
            static_cast<float>(u8(packed + group + 4) & 63)};
  const int low = u8(packed + group + 4);
  const int scale_top = u8(packed + group - 4) >> 6;
  const int min_top = u8(packed + group) >> 6;
  return {static_cast<float>((low & 15) | (scale_top << 4)),
          static_cast<float>((low >> 4) | (min_top << 4))};
}

// Groups of 32; groups 2j and 2j + 1 are the low and high halves of 32 digit bytes.
void q4_k(const std::byte* block, float* out) {
  const float d = f16(block);
  const float dmin = f16(block + 2);
  const std::byte* digits = block + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMin s = k_scale(block + 4, group);
    const float scale = d * s.scale;
    const float min = dmin * s.min;
    for (int i = 0; i < 32; ++i) {
      const int byte = u8(digits + 32 * (group / 2) + i);
      const int q = group % 2 == 0 ? byte & 15 : byte >> 4;
      out[32 * group + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// As q4_k with a fifth bit: of number i of group g in bit g of byte i.
void q5_k(const std::byte* block, float* out) {
  const float d = f16(block);
  const float dmin = f16(block + 2);
  const std::byte* high = block + 16;
  const std::byte* digits = block + 48;
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMin s = k_scale(block + 4, group);
    const float scale = d * s.scale;
    const float min = dmin * s.min;
    for (int i = 0; i < 32; ++i) {
      const int byte = u8(digits + 32 * (group / 2) + i);
      const int low = group % 2 == 0 ? byte & 15 : byte >> 4;
      const int q = low | (((u8(high + i) >> group) & 1) << 4);
      out[32 * group + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// Two halves of 128 numbers: 64 bytes of low digits (numbers 0-63 in low halves, 64-127 in high
// halves) and 32 bytes with the two top bits four numbers deep. Groups of 16, signed scales.
void q6_k(const std::byte* block, float* out) {
  const std::byte* scales = block + 192;
  const float d = f16(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int within = i % 128;
    const int byte = u8(block + 64 * half + within % 64);
    const int low = within < 64 ? byte & 15 : byte >> 4;
    const int top = (u8(block + 128 + 32 * half + within % 32) >> (2 * (within / 32))) & 3;
    out[i] =
        d * static_cast<float>(i8(scales + i / 16)) * static_cast<float>((low | (top << 4)) - 32);
  }
}

using BlockRoutine = void (*)(const std::byte* block, float* out);

BlockRoutine block_routine(WeightType type) {
  switch (type) {
    case WeightType::q4_0: return q4_0;
    case WeightType::q4_1: return q4_1;
    case WeightType::q5_0: return q5_0;
    case WeightType::q5_1: return q5_1;
    case WeightType::q8_0: return q8_0;
    case WeightType::q2_k: return q2_k;
    case WeightType::q3_k: return q3_k;
    case WeightType::q4_k: return q4_k;
    case WeightType::q5_k: return q5_k;
    case WeightType::q6_k: return q6_k;
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16: break;
  }
  return nullptr;
}

}  // namespace

void dequantise(WeightType type, const std::byte* data, std::int64_t count, float* out) {
  if (count == 0) return;
  switch (type) {
    case WeightType::f32:
      std::memcpy(out, data, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case WeightType::f16:
      for (std::int64_t i = 0; i < count; ++i) out[i] = f16(data + 2 * i);
      return;
    case WeightType::bf16:
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = tensor::to_float(tensor::Bf16{u16(data + 2 * i)});
      return;
    default: break;
  }
  const BlockRoutine routine = block_routine(type);
  const BlockSize size = block_size(type);
  for (std::int64_t i = 0; i < count; i += size.per_block, data += size.bytes_per_block)
    routine(data, out + i);
}

void dequantise_bf16(WeightType type, const std::byte* data, std::int64_t count,
                     std::uint16_t* out) {
  if (count == 0) return;
  if (type == WeightType::bf16) {
    std::memcpy(out, data, static_cast<std::size_t>(count) * sizeof(std::uint16_t));
    return;
  }
  constexpr std::int64_t kStep = 256;  // the largest block
  std::array<float, kStep> values;
  for (std::int64_t i = 0; i < count; i += kStep) {
    const std::int64_t n = std::min(kStep, count - i);
    dequantise(type, data + row_bytes(type, i), n, values.data());
    for (std::int64_t j = 0; j < n; ++j)
      out[i + j] = tensor::to_bf16(values[static_cast<std::size_t>(j)]).bits;
  }
}

}  // namespace attune::kernels::ops
