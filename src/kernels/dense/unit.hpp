// The two ways to multiply (layer kernels): fused multiply-add on fp32 lanes, and dot products of
// bf16 pairs. A body written against a unit serves both.
//
//   Number    an element of the packed operands
//   kPair     numbers along the summed dimension that one product takes in
//   Operand   kLanes * kPair numbers
#pragma once

#include <cstdint>

#include <attune/tensor.hpp>

#include "kernels/simd/unroll.hpp"

namespace attune::kernels::dense {

template <class Isa>
struct FmaUnit {
  using V = Isa;
  using F = typename V::F;
  using Number = float;
  using Operand = F;
  static constexpr int kPair = 1;
  static constexpr int kNumbers = V::kLanes;

  static F multiply_add(Operand a, Operand b, F acc) { return V::fma(a, b, acc); }
  static Operand zero() { return V::zero(); }
  static Operand load(const Number* p) { return V::load(p); }
  static void store(Number* p, Operand x) { V::store(p, x); }
  static Operand broadcast(const Number* p) { return V::set(*p); }
  template <DType T>
  static Operand load_as(const void* p) {
    return V::template load_as<T>(p);
  }
  template <DType T>
  static Operand load_as_n(const void* p, int n) {
    return V::template load_as_n<T>(p, n);
  }
  static Operand round(const F (&x)[kPair]) { return x[0]; }
  static void transpose(Operand (&m)[V::kLanes]) { V::transpose(m); }
  /// Rows of values → operands of kLanes columns each.
  static void columns(const Operand (&rows)[kPair], Operand (&out)[kPair]) { out[0] = rows[0]; }
  static F exp2(F x) { return V::exp2(x); }
};

template <class Isa>
struct Bf16Unit {
  using V = Isa;
  using F = typename V::F;
  using Number = std::uint16_t;
  using Operand = typename V::Pairs;
  static constexpr int kPair = 2;
  static constexpr int kNumbers = V::kNumbers;

  static F multiply_add(Operand a, Operand b, F acc) { return V::dot_pairs(acc, a, b); }
  static Operand zero() { return Operand{}; }
  static Operand load(const Number* p) { return V::load_pairs(p); }
  static void store(Number* p, Operand x) { V::store_pairs(p, x); }
  static Operand broadcast(const Number* p) { return V::broadcast_pair(p); }
  template <DType T>
  static Operand load_as(const void* p) {
    return V::template load_pairs_as<T>(p);
  }
  template <DType T>
  static Operand load_as_n(const void* p, int n) {
    return V::template load_pairs_as_n<T>(p, n);
  }
  static Operand round(const F (&x)[kPair]) { return V::round_to_pairs(x[0], x[1]); }
  /// Pairs move as 32-bit cells.
  static void transpose(Operand (&m)[V::kLanes]) { V::transpose_pairs(m); }
  static void columns(const Operand (&rows)[kPair], Operand (&out)[kPair]) {
    V::interleave(rows[0], rows[1], out[0], out[1]);
  }
  static F exp2(F x) { return V::exp2_rough(x); }
};

/// Bytes of one stored number, for pointer steps.
template <DType T>
inline constexpr std::int64_t kBytes = static_cast<std::int64_t>(T == DType::f32 ? 4
                                                                 : (T == DType::bf16 ||
                                                                    T == DType::f16)
                                                                     ? 2
                                                                     : 1);

}  // namespace attune::kernels::dense
