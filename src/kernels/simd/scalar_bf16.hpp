// ScalarBf16: Scalar with pairs of bf16, for the emulated tiles (layer kernels). Verbs as in
// avx512_bf16.hpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/simd/scalar.hpp"

namespace attune::kernels::simd {

struct ScalarBf16 : Scalar {
  struct Pairs {
    std::uint16_t number[2] = {};
  };
  static constexpr int kNumbers = 2;

  static F dot_pairs(F acc, Pairs a, Pairs b) {
    for (int i = 0; i < kNumbers; ++i) acc += value(a.number[i]) * value(b.number[i]);
    return acc;
  }
  static Pairs load_pairs(const std::uint16_t* p) { return {{p[0], p[1]}}; }
  static void store_pairs(std::uint16_t* p, Pairs x) {
    for (int i = 0; i < kNumbers; ++i) p[i] = x.number[i];
  }
  static Pairs broadcast_pair(const std::uint16_t* p) { return load_pairs(p); }

  template <DType T>
  static Pairs load_pairs_as(const void* p) {
    return load_pairs_as_n<T>(p, kNumbers);
  }
  template <DType T>
  static Pairs load_pairs_as_n(const void* p, int n) {
    Pairs pairs;
    for (int i = 0; i < kNumbers && i < n; ++i) {
      const char* const at = static_cast<const char*>(p) + i * (T == DType::bf16 ? 2 : 1);
      pairs.number[i] = tensor::to_bf16(load_as<T>(at)).bits;
    }
    return pairs;
  }

  template <DType T>
  static constexpr int kRun = 1;
  template <DType T>
  static void load_run(const void* p, Pairs (&x)[kRun<T>]) {
    x[0] = load_pairs_as<T>(p);
  }

  static Pairs round_to_pairs(F low, F high) {
    return {{tensor::to_bf16(low).bits, tensor::to_bf16(high).bits}};
  }
  static void transpose_pairs(Pairs (&)[kLanes]) {}
  static void interleave(Pairs a, Pairs b, Pairs& low, Pairs& high) {
    low = {{a.number[0], b.number[0]}};
    high = {{a.number[1], b.number[1]}};
  }

  /// The verbs of simd::Amx.
  static void split_even_odd(float* x) {
    float in[32];
    std::memcpy(in, x, sizeof in);
    for (int i = 0; i < 32; ++i) x[i % 2 * 16 + i / 2] = in[i];
  }
  static void join_even_odd(float* x) {
    float in[32];
    std::memcpy(in, x, sizeof in);
    for (int i = 0; i < 32; ++i) x[i] = in[i % 2 * 16 + i / 2];
  }
  static void spread_pairs(const std::uint16_t* from, std::uint16_t* first, std::uint16_t* second) {
    for (int i = 0; i < 16; ++i) {
      first[2 * i] = second[2 * i + 1] = from[i];
      first[2 * i + 1] = second[2 * i] = 0;
    }
  }
  static void spread_fours(const std::int8_t* from, char* to) {
    std::memset(to, 0, 4 * 64);
    for (int place = 0; place < 4; ++place)
      for (int i = 0; i < 16; ++i) to[place * 64 + 4 * i + place] = static_cast<char>(from[i]);
  }
  template <int kBits, bool kSigned>
  static void store_digits(F x, F times, void* high, void* low) {
    const auto n = static_cast<int>(std::nearbyintf(x * times));
    const int upper = (n + (kSigned ? 1 << (kBits - 1) : 0)) >> kBits;
    *static_cast<std::int8_t*>(high) = static_cast<std::int8_t>(upper);
    *static_cast<std::int8_t*>(low) = static_cast<std::int8_t>(n - upper * (1 << kBits));
  }
  static Pairs load_bytes(const void* p) {
    Pairs pairs;
    std::memcpy(pairs.number, p, sizeof pairs.number);
    return pairs;
  }
  static F join_digits(const float* high, const float* low) {
    std::int32_t digits[2];
    std::memcpy(&digits[0], high, sizeof digits[0]);
    std::memcpy(&digits[1], low, sizeof digits[1]);
    return static_cast<float>(digits[0] * 128 + digits[1]);
  }

 private:
  static float value(std::uint16_t bits) { return tensor::to_float(tensor::Bf16{bits}); }
};

}  // namespace attune::kernels::simd
