// Scalar: one lane, plain C++: the fallback, and the text the vector types are checked against
// (layer kernels). The verbs are documented here; avx2.hpp and avx512.hpp have the same ones.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <attune/tensor.hpp>

#include "tensor/narrow_float.hpp"

namespace attune::kernels::simd {

struct Scalar {
  static constexpr int kLanes = 1;
  static constexpr int kNumColumns = 2;  ///< vectors a register tile is wide
  static constexpr int kStreams = 1;     ///< of memory, asked for at once (paged_decode/fetch.hpp)
  static constexpr bool kDeals = false;  ///< whether there is deal(), as in avx512.hpp
  using F = float;

  static F zero() { return 0.0f; }
  static F set(float x) { return x; }
  static F load(const float* p) { return *p; }
  static void store(float* p, F x) { *p = x; }
  /// The first n lanes; the others read as zero, and are not written.
  static F load_n(const float* p, int n) { return n > 0 ? *p : 0.0f; }
  static void store_n(float* p, F x, int n) {
    if (n > 0) *p = x;
  }

  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  /// b where either is NaN.
  static F max(F a, F b) { return a > b ? a : b; }
  static F abs(F a) { return std::fabs(a); }
  static F copy_sign(F magnitude, F sign) { return std::copysign(magnitude, sign); }
  static float sum(F a) { return a; }
  static float largest(F a) { return a; }
  /// Whether any lane of a is greater than b's; NaN is not.
  static bool any_greater(F a, F b) { return a > b; }
  /// 0, 1, 2, … by lane.
  static F lane_numbers() { return 0.0f; }
  /// Lane i keeps x where from <= i < to, else takes `other`.
  static F keep_range(F x, int from, int to, F other) { return from <= 0 && to > 0 ? x : other; }
  /// Lane i keeps x where bit i is set, else takes `other`.
  static F keep_bits(F x, std::uint32_t bits, F other) { return (bits & 1u) != 0 ? x : other; }

  /// 2^x; 0 for -inf, NaN for NaN.
  static F exp2(F x) { return std::exp2(x); }
  /// To about 3e-6, for results that are rounded to bf16 next.
  static F exp2_rough(F x) { return std::exp2(x); }

  /// Lane i of the result is the sum of the lanes of a[i].
  static F sum_each(const F (&a)[kLanes]) { return a[0]; }
  /// A kLanes by kLanes matrix of 32-bit cells.
  static void transpose(F (&)[kLanes]) {}

  /// kLanes stored numbers as fp32, exactly.
  template <DType T>
  static F load_as(const void* p) {
    return load_as_n<T>(p, 1);
  }
  template <DType T>
  static F load_as_n(const void* p, int n) {
    if (n <= 0) return 0.0f;
    if constexpr (T == DType::f32) return read<float>(p);
    if constexpr (T == DType::bf16) return tensor::to_float(read<tensor::Bf16>(p));
    if constexpr (T == DType::f16) return tensor::to_float(read<tensor::F16>(p));
    if constexpr (T == DType::fp8_e4m3) return tensor::to_float(read<tensor::E4m3>(p));
    if constexpr (T == DType::fp8_e5m2) return tensor::to_float(read<tensor::E5m2>(p));
    if constexpr (T == DType::i8) return tensor::to_float(read<std::int8_t>(p));
  }
  /// Rounded once, to nearest even; f32, bf16 and f16.
  template <DType T>
  static void store_as_n(void* p, F x, int n) {
    if (n <= 0) return;
    if constexpr (T == DType::f32) std::memcpy(p, &x, sizeof x);
    if constexpr (T == DType::bf16) write(p, tensor::to_bf16(x));
    if constexpr (T == DType::f16) write(p, tensor::round_to<tensor::F16>(x));
  }

  [[gnu::always_inline]] static void prefetch(const void*) {}
  [[gnu::always_inline]] static void prefetch_far(const void*) {}

 private:
  template <class T>
  static T read(const void* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  template <class T>
  static void write(void* p, T value) {
    std::memcpy(p, &value, sizeof value);
  }
};

}  // namespace attune::kernels::simd
