// UnitScalar: sixteen lanes in plain C++ (layer kernels). Verbs as body.hpp lists them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/narrow_float.hpp"

namespace attune::kernels::quant_matmul {

struct UnitScalar {
  static constexpr int kRows = 4;
  static constexpr int kFullZero = 0;
  struct F {
    float lane[16];
  };
  struct I {
    std::int32_t lane[16];
  };
  struct Line {
    std::uint8_t byte[64];
  };

  static F set(float x) {
    F r;
    for (float& v : r.lane) v = x;
    return r;
  }
  static F load(const float* p) { return load_n(p, 16); }
  static F load_n(const float* p, int n) {
    F r{};
    for (int i = 0; i < n; ++i) r.lane[i] = p[i];
    return r;
  }
  static void store_n(float* p, const F& x, int n) {
    for (int i = 0; i < n; ++i) p[i] = x.lane[i];
  }
  static F add(F a, const F& b) {
    for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
    return a;
  }
  static F mul(F a, const F& b) {
    for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
    return a;
  }
  static F fma(F a, const F& b, const F& c) { return add(mul(a, b), c); }
  static F abs(F a) {
    for (float& v : a.lane) v = std::fabs(v);
    return a;
  }
  /// NaN if any lane is.
  static float largest(const F& a) {
    float r = a.lane[0];
    for (float v : a.lane) r = v > r || v != v ? v : r;
    return r;
  }
  /// To nearest even; the sum of the stored numbers.
  static std::int32_t store_rounded(std::int8_t* p, const F& x) {
    std::int32_t sum = 0;
    for (int i = 0; i < 16; ++i) {
      p[i] = tensor::round_to<std::int8_t>(x.lane[i]);
      sum += p[i];
    }
    return sum;
  }

  static I integers(std::int32_t x) {
    I r;
    for (std::int32_t& v : r.lane) v = x;
    return r;
  }
  static F to_float(const I& x) {
    F r;
    for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(x.lane[i]);
    return r;
  }
  static F halves(const std::byte* p) {
    F r;
    for (int i = 0; i < 16; ++i) {
      tensor::F16 half;
      std::memcpy(&half.bits, p + 2 * i, 2);
      r.lane[i] = tensor::to_float(half);
    }
    return r;
  }
  static F unsigned_bytes(const std::byte* p) {
    F r;
    for (int i = 0; i < 16; ++i) r.lane[i] = std::to_integer<std::uint8_t>(p[i]);
    return r;
  }
  static F signed_bytes(const std::byte* p) {
    F r;
    for (int i = 0; i < 16; ++i)
      r.lane[i] = static_cast<std::int8_t>(std::to_integer<std::uint8_t>(p[i]));
    return r;
  }

  static void prefetch(const std::byte*) {}
  static Line line(const std::byte* p) {
    Line r;
    std::memcpy(r.byte, p, 64);
    return r;
  }
  static Line low(Line x) {
    for (std::uint8_t& b : x.byte) b &= 15;
    return x;
  }
  static Line high(Line x) {
    for (std::uint8_t& b : x.byte) b = static_cast<std::uint8_t>(b >> 4);
    return x;
  }
  static I dot(I sum, const Line& digits, const std::int8_t* q) {
    for (int i = 0; i < 16; ++i)
      for (int b = 0; b < 4; ++b) sum.lane[i] += digits.byte[4 * i + b] * q[b];
    return sum;
  }
  static I dot_full(I sum, const Line& digits, const std::int8_t* q) { return dot(sum, digits, q); }
};

}  // namespace attune::kernels::quant_matmul
