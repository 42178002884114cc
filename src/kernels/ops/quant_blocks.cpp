#include "kernels/ops/quant_blocks.hpp"

#include <cstring>

namespace attune::kernels::ops {
namespace {

std::uint8_t u8(const std::byte* p) { return std::to_integer<std::uint8_t>(*p); }

std::uint16_t u16(const std::byte* p) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

// Blocks of 32: numbers 0 to 15 in the low halves of 16 bytes, 16 to 31 in the high halves.
void split_halves(const std::byte* bytes, std::uint8_t* digits) {
  for (int i = 0; i < 16; ++i) {
    digits[i] = u8(bytes + i) & 15;
    digits[i + 16] = u8(bytes + i) >> 4;
  }
}

// The fifth bits of 32 numbers, number i in bit i.
void add_fifth_bits(const std::byte* bytes, std::uint8_t* digits) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  for (int i = 0; i < 32; ++i)
    digits[i] = static_cast<std::uint8_t>(digits[i] | (((bits >> i) & 1u) << 4));
}

void q4_0(const std::byte* block, QuantBlock& out) {
  out.d = u16(block);
  split_halves(block + 2, out.digits);
}

void q4_1(const std::byte* block, QuantBlock& out) {
  out.d = u16(block);
  out.m = u16(block + 2);
  split_halves(block + 4, out.digits);
}

void q5_0(const std::byte* block, QuantBlock& out) {
  out.d = u16(block);
  split_halves(block + 6, out.digits);
  add_fifth_bits(block + 2, out.digits);
}

void q5_1(const std::byte* block, QuantBlock& out) {
  out.d = u16(block);
  out.m = u16(block + 2);
  split_halves(block + 8, out.digits);
  add_fifth_bits(block + 4, out.digits);
}

void q8_0(const std::byte* block, QuantBlock& out) {
  out.d = u16(block);
  for (int i = 0; i < 32; ++i) out.digits[i] = u8(block + 2 + i) ^ 0x80;  // signed → plus 128
}

// Two bits of 256 numbers: each half of 128 keeps 32 bytes four numbers deep, number 32 * j + i of
// the half in bits 2j and 2j + 1 of byte i.
std::uint8_t two_bits(const std::byte* bytes, int i) {
  return (u8(bytes + 32 * (i / 128) + i % 32) >> (2 * (i % 128 / 32))) & 3;
}

void q2_k(const std::byte* block, QuantBlock& out) {
  for (int i = 0; i < 256; ++i) out.digits[i] = two_bits(block + 16, i);
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = static_cast<std::int8_t>(u8(block + g) & 15);
    out.mins[g] = u8(block + g) >> 4;
  }
  out.d = u16(block + 80);
  out.m = u16(block + 82);
}

// The third bit of number i: bit i / 32 of byte i % 32. 16 scales of 6 bits: four low bits of scale
// s in a half of byte s % 8, two high bits in byte 8 + s % 4.
void q3_k(const std::byte* block, QuantBlock& out) {
  const std::byte* scales = block + 96;
  for (int i = 0; i < 256; ++i) {
    const int third = (u8(block + i % 32) >> (i / 32)) & 1;
    out.digits[i] = static_cast<std::uint8_t>(two_bits(block + 32, i) | (third << 2));
  }
  for (int s = 0; s < 16; ++s) {
    const int low = s < 8 ? u8(scales + s) & 15 : u8(scales + s - 8) >> 4;
    const int high = (u8(scales + 8 + s % 4) >> (2 * (s / 4))) & 3;
    out.scales[s] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  }
  out.d = u16(block + 108);
}

// Eight scales and eight minima of 6 bits in 12 bytes: the first four of each in the low 6 bits of
// bytes 0-3 and 4-7; of the others, four bits in bytes 8-11 (low half scale, high half minimum) and
// two in the top bits of bytes 0-3 and 4-7.
void k_scales(const std::byte* packed, QuantBlock& out) {
  for (int g = 0; g < 4; ++g) {
    const int scale = u8(packed + g);
    const int min = u8(packed + g + 4);
    const int low = u8(packed + g + 8);
    out.scales[g] = static_cast<std::int8_t>(scale & 63);
    out.mins[g] = static_cast<std::uint8_t>(min & 63);
    out.scales[g + 4] = static_cast<std::int8_t>((low & 15) | (scale >> 6 << 4));
    out.mins[g + 4] = static_cast<std::uint8_t>((low >> 4) | (min >> 6 << 4));
  }
}

// Groups 2j and 2j + 1 of 32 are the low and high halves of 32 bytes.
void k_digits(const std::byte* bytes, std::uint8_t* digits) {
  for (int i = 0; i < 256; ++i) {
    const std::uint8_t byte = u8(bytes + 32 * (i / 64) + i % 32);
    digits[i] = i % 64 < 32 ? byte & 15 : byte >> 4;
  }
}

void q4_k(const std::byte* block, QuantBlock& out) {
  out.d = u16(block);
  out.m = u16(block + 2);
  k_scales(block + 4, out);
  k_digits(block + 16, out.digits);
}

// The fifth bit of number i of group g: bit g of byte i.
void q5_k(const std::byte* block, QuantBlock& out) {
  out.d = u16(block);
  out.m = u16(block + 2);
  k_scales(block + 4, out);
  k_digits(block + 48, out.digits);
  for (int i = 0; i < 256; ++i) {
    const int fifth = (u8(block + 16 + i % 32) >> (i / 32)) & 1;
    out.digits[i] = static_cast<std::uint8_t>(out.digits[i] | (fifth << 4));
  }
}

// Two halves of 128 numbers: 64 bytes of low digits (numbers 0-63 in low halves, 64-127 in high
// halves), then for both the two top bits.
void q6_k(const std::byte* block, QuantBlock& out) {
  for (int i = 0; i < 256; ++i) {
    const std::uint8_t byte = u8(block + 64 * (i / 128) + i % 64);
    const int low = i % 128 < 64 ? byte & 15 : byte >> 4;
    out.digits[i] = static_cast<std::uint8_t>(low | (two_bits(block + 128, i) << 4));
  }
  for (int g = 0; g < 16; ++g) out.scales[g] = static_cast<std::int8_t>(u8(block + 192 + g));
  out.d = u16(block + 208);
}

}  // namespace

void take_apart(WeightType type, const std::byte* block, QuantBlock& out) {
  switch (type) {
    case WeightType::q4_0: q4_0(block, out); return;
    case WeightType::q4_1: q4_1(block, out); return;
    case WeightType::q5_0: q5_0(block, out); return;
    case WeightType::q5_1: q5_1(block, out); return;
    case WeightType::q8_0: q8_0(block, out); return;
    case WeightType::q2_k: q2_k(block, out); return;
    case WeightType::q3_k: q3_k(block, out); return;
    case WeightType::q4_k: q4_k(block, out); return;
    case WeightType::q5_k: q5_k(block, out); return;
    case WeightType::q6_k: q6_k(block, out); return;
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16: return;
  }
}

}  // namespace attune::kernels::ops
