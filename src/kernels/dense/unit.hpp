// The ways to multiply (layer kernels): fused multiply-add on fp32 lanes, dot products of bf16
// pairs, tiles of such pairs. A body written against a unit serves them all.
//
//   Number    an element of the packed operands
//   kPair     numbers along the summed dimension that one product takes in
//   Operand   kLanes * kPair numbers
//   kRun      operands that load_run makes of stored numbers that fill a vector
//   load_keys  load_run in an order of its own, that of queries after order_as_keys
//   kSplits   whether load_run's operands hold the even and the odd numbers apart
//   kTwoAtOnce  whether two rows of stored numbers become columns in one go, load_columns
//   kStripRows  rows of a register tile; kDepth  numbers it is deep at least
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
  static constexpr bool kSplits = false;
  template <DType T>
  static constexpr bool kTwoAtOnce = false;
  static constexpr int kNumbers = V::kLanes;
  /// With kNumColumns vectors beside them 6 rows fill 24 of 32 (AVX-512) or 12 of 16 (AVX2)
  /// registers and read 10 operands for 24 products, well under two loads a cycle.
  static constexpr int kStripRows = 6;
  static constexpr int kDepth = kPair;

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
  template <DType T>
  static constexpr int kRun = 1;
  template <DType T>
  static void load_run(const void* p, Operand (&x)[kRun<T>]) {
    x[0] = load_as<T>(p);
  }
  template <DType T>
  static void load_keys(const void* p, Operand (&x)[kRun<T>]) {
    load_run<T>(p, x);
  }
  template <DType>
  static void order_as_keys(Number*, std::int64_t) {}
  static Operand round(const F (&x)[kPair]) { return x[0]; }
  /// Lane i holds number i of each vector.
  static Operand round_lanes(const F (&x)[kPair]) { return x[0]; }
  static void transpose(Operand (&m)[V::kLanes]) { V::transpose(m); }
  /// Rows of values → operands of kLanes columns each.
  static void columns(const Operand (&rows)[kPair], Operand (&out)[kPair]) { out[0] = rows[0]; }
  static F exp2(F x) { return V::exp2(x); }
};

/// FmaUnit that makes two operands of 32 stored numbers with a shift and a mask. For cores on which
/// vdpbf16ps takes longer than the two fused multiply-adds that it stands for.
template <class Isa>
struct SplitUnit : FmaUnit<Isa> {
  using typename FmaUnit<Isa>::V;
  using typename FmaUnit<Isa>::Operand;
  static constexpr bool kSplits = true;
  template <DType T>
  static constexpr int kRun = 2 * V::template kRun<T>;
  template <DType T>
  static void load_run(const void* p, Operand (&x)[kRun<T>]) {
    typename V::Pairs pairs[V::template kRun<T>];
    V::template load_run<T>(p, pairs);
    simd::unroll<V::template kRun<T>>([&](auto i) {
      x[2 * i] = V::even(pairs[i]);
      x[2 * i + 1] = V::odd(pairs[i]);
    });
  }
  template <DType T>
  static void load_keys(const void* p, Operand (&x)[kRun<T>]) {
    load_run<T>(p, x);
  }
  /// `count` numbers, of which each 32 are put in the order of load_run; and back.
  template <DType>
  static void order_as_keys(float* x, std::int64_t count) {
    for (std::int64_t i = 0; i + 2 * V::kLanes <= count; i += 2 * V::kLanes)
      V::split_even_odd(x + i);
  }
  static void join(float* x, std::int64_t count) {
    for (std::int64_t i = 0; i + 2 * V::kLanes <= count; i += 2 * V::kLanes)
      V::join_even_odd(x + i);
  }
};

template <class Isa>
struct Bf16Unit {
  using V = Isa;
  using F = typename V::F;
  using Number = std::uint16_t;
  using Operand = typename V::Pairs;
  static constexpr int kPair = 2;
  static constexpr bool kSplits = false;
  template <DType T>
  static constexpr bool kTwoAtOnce = T == DType::fp8_e4m3 || T == DType::fp8_e5m2;
  /// Columns of two rows of 64 values, in an order that restore undoes.
  template <DType T>
  static void load_columns(const void* a, const void* b, Operand (&out)[2 * kPair]) {
    V::template load_columns<T>(a, b, out);
  }
  static void restore(float* columns) { V::restore_order(columns); }
  static constexpr int kNumbers = V::kNumbers;
  static constexpr int kStripRows = 6;
  static constexpr int kDepth = kPair;

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
  template <DType T>
  static constexpr int kRun = V::template kRun<T>;
  template <DType T>
  static void load_run(const void* p, Operand (&x)[kRun<T>]) {
    V::template load_run<T>(p, x);
  }
  /// A whole load of a key, in the order that order_as_keys gives to `count` numbers of queries.
  template <DType T>
  static void load_keys(const void* p, Operand (&x)[kRun<T>]) {
    V::template load_keys<T>(p, x);
  }
  template <DType T>
  static void order_as_keys(Number* x, std::int64_t count) {
    if constexpr (kRun<T> == 2)
      for (std::int64_t i = 0; i + 2 * kNumbers <= count; i += 2 * kNumbers)
        V::order_as_keys(x + i);
  }
  static Operand round(const F (&x)[kPair]) { return V::round_to_pairs(x[0], x[1]); }
  static Operand round_lanes(const F (&x)[kPair]) { return V::pair_lanes(x[0], x[1]); }
  /// Pairs move as 32-bit cells.
  static void transpose(Operand (&m)[V::kLanes]) { V::transpose_pairs(m); }
  static void columns(const Operand (&rows)[kPair], Operand (&out)[kPair]) {
    V::interleave(rows[0], rows[1], out[0], out[1]);
  }
  static F exp2(F x) { return V::exp2_rough(x); }
};

/// Bf16Unit whose register tiles are tile registers: strips of 32 rows, products 32 keys deep.
template <class Isa, class T>
struct TileUnit : Bf16Unit<Isa> {
  using Tiles = T;
  static constexpr int kStripRows = 32;
  static constexpr int kDepth = 32;
};

/// Bytes of one stored number, for pointer steps.
template <DType T>
inline constexpr std::int64_t kBytes = static_cast<std::int64_t>(T == DType::f32 ? 4
                                                                 : (T == DType::bf16 ||
                                                                    T == DType::f16)
                                                                     ? 2
                                                                     : 1);

}  // namespace attune::kernels::dense
