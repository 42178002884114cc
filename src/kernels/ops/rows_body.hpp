// The routines of rows.hpp on a SIMD type (layer kernels).
#pragma once

#include <cstdint>

#include <attune/tensor.hpp>

#include "kernels/ops/rows.hpp"

namespace attune::kernels::ops {

template <class V>
struct RowBody {
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;

  /// f(first, lanes) over n numbers: whole vectors, then what is left.
  template <class Step>
  static void each(std::int64_t n, Step&& step) {
    std::int64_t i = 0;
    for (; n - i >= kLanes; i += kLanes) step(i, kLanes);
    if (i < n) step(i, static_cast<int>(n - i));
  }
  static F load(const float* p, int n) { return n == kLanes ? V::load(p) : V::load_n(p, n); }
  static void store(float* p, F x, int n) {
    if (n == kLanes) {
      V::store(p, x);
    } else {
      V::store_n(p, x, n);
    }
  }
  static F negative(F x) { return V::sub(V::zero(), x); }
  static F min(F a, F b) { return negative(V::max(negative(a), negative(b))); }

  static F exp(F x) {
    constexpr float kLog2E = 1.44269504f;
    constexpr float kMost = 126.0f;  // 2^126 stands for every larger power
    return V::exp2(min(V::set(kMost), V::mul(x, V::set(kLog2E))));
  }
  static F sigmoid(F x) {
    const F one = V::set(1.0f);
    return V::div(one, V::add(one, exp(negative(x))));
  }
  /// Absolute error 2e-7.
  static F tanh(F x) {
    const F one = V::set(1.0f);
    const F twice = V::add(one, exp(V::add(x, x)));
    return V::sub(one, V::div(V::set(2.0f), twice));
  }
  /// Abramowitz and Stegun 7.1.26, absolute error 2e-7.
  static F erf(F x) {
    const F a = V::abs(x);
    const F one = V::set(1.0f);
    const F t = V::div(one, V::fma(a, V::set(0.3275911f), one));
    F p = V::set(1.061405429f);
    p = V::fma(p, t, V::set(-1.453152027f));
    p = V::fma(p, t, V::set(1.421413741f));
    p = V::fma(p, t, V::set(-0.284496736f));
    p = V::fma(p, t, V::set(0.254829592f));
    const F tail = V::mul(V::mul(p, t), exp(negative(V::mul(a, a))));
    return V::copy_sign(V::sub(one, tail), x);
  }

  static F activated(RowActivation kind, F x, float alpha) {
    const F one = V::set(1.0f);
    const F half = V::mul(V::set(0.5f), x);
    switch (kind) {
      case RowActivation::silu: return V::mul(x, sigmoid(x));
      case RowActivation::gelu:
        return V::mul(half, V::add(one, erf(V::mul(x, V::set(0.707106781f)))));
      case RowActivation::gelu_tanh: {
        const F cube = V::mul(V::mul(x, x), x);
        const F inner = V::mul(V::set(0.797884561f), V::fma(V::set(0.044715f), cube, x));
        return V::mul(half, V::add(one, tanh(inner)));
      }
      case RowActivation::relu: return V::max(V::zero(), x);
      case RowActivation::relu2: {
        const F positive = V::max(V::zero(), x);
        return V::mul(positive, positive);
      }
      case RowActivation::swiglu_oai: return V::mul(x, sigmoid(V::mul(V::set(alpha), x)));
    }
    return x;
  }

  /// The sum of f(x) over n numbers, in four vectors.
  template <class Term>
  static float sum(const float* x, std::int64_t n, Term&& term) {
    F s0 = V::zero();
    F s1 = V::zero();
    F s2 = V::zero();
    F s3 = V::zero();
    std::int64_t i = 0;
    for (; n - i >= 4 * kLanes; i += 4 * kLanes) {
      s0 = V::add(s0, term(V::load(x + i)));
      s1 = V::add(s1, term(V::load(x + i + kLanes)));
      s2 = V::add(s2, term(V::load(x + i + 2 * kLanes)));
      s3 = V::add(s3, term(V::load(x + i + 3 * kLanes)));
    }
    for (; n - i >= kLanes; i += kLanes) s0 = V::add(s0, term(V::load(x + i)));
    float total = V::sum(V::add(V::add(s0, s1), V::add(s2, s3)));
    for (; i < n; ++i) {
      // One lane at a time: a term of an absent number need not be zero.
      float lanes[kLanes] = {x[i]};
      F one = term(V::load(lanes));
      V::store(lanes, one);
      total += lanes[0];
    }
    return total;
  }

  static F factor_of(const NormRow& row, std::int64_t i, int n) {
    if (row.weight == nullptr) return V::set(1.0f);
    return V::add(load(row.weight + i, n), V::set(row.weight_offset));
  }

  static void rms_norm(const NormRow& row) {
    const float squares = sum(row.x, row.n, [](F x) { return V::mul(x, x); });
    const F factor = V::set(1.0f / __builtin_sqrtf(squares / static_cast<float>(row.n) + row.eps));
    each(row.n, [&](std::int64_t i, int n) {
      store(row.out + i, V::mul(V::mul(load(row.x + i, n), factor), factor_of(row, i, n)), n);
    });
  }

  static void layer_norm(const NormRow& row) {
    const auto count = static_cast<float>(row.n);
    const F mean = V::set(sum(row.x, row.n, [](F x) { return x; }) / count);
    const float squares = sum(row.x, row.n, [&](F x) {
      const F d = V::sub(x, mean);
      return V::mul(d, d);
    });
    const F factor = V::set(1.0f / __builtin_sqrtf(squares / count + row.eps));
    each(row.n, [&](std::int64_t i, int n) {
      const F x = V::mul(V::sub(load(row.x + i, n), mean), factor);
      const F bias = row.bias == nullptr ? V::zero() : load(row.bias + i, n);
      store(row.out + i, V::fma(x, factor_of(row, i, n), bias), n);
    });
  }

  static void rope(float* x, const float* cos, const float* sin, std::int64_t pairs,
                   bool interleaved, float direction) {
    if (interleaved) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const float a = x[2 * i];
        const float b = x[2 * i + 1];
        const float s = sin[i] * direction;
        x[2 * i] = a * cos[i] - b * s;
        x[2 * i + 1] = b * cos[i] + a * s;
      }
      return;
    }
    each(pairs, [&](std::int64_t i, int n) {
      const F a = load(x + i, n);
      const F b = load(x + pairs + i, n);
      const F c = load(cos + i, n);
      const F s = V::mul(load(sin + i, n), V::set(direction));
      store(x + i, V::sub(V::mul(a, c), V::mul(b, s)), n);
      store(x + pairs + i, V::fma(b, c, V::mul(a, s)), n);
    });
  }

  static void gate_vectors(const GatedRow& row, const float* gates, const float* ups,
                           std::int64_t count, float* out) {
    each(count, [&](std::int64_t i, int n) {
      F gate = load(gates + i, n);
      F up = load(ups + i, n);
      if (row.limit > 0) {
        gate = min(V::set(row.limit), gate);
        up = V::max(V::set(-row.limit), min(V::set(row.limit), up));
      }
      if (row.kind == RowActivation::swiglu_oai) up = V::add(up, V::set(1.0f));
      store(out + i, V::mul(activated(row.kind, gate, row.alpha), up), n);
    });
  }

  static void gated(const GatedRow& row) {
    if (row.stride == 1) return gate_vectors(row, row.gate, row.up, row.n, row.out);
    constexpr std::int64_t kPiece = 64;
    for (std::int64_t first = 0; first < row.n; first += kPiece) {
      const std::int64_t count = row.n - first < kPiece ? row.n - first : kPiece;
      float gates[kPiece];
      float ups[kPiece];
      for (std::int64_t i = 0; i < count; ++i) {
        gates[i] = row.gate[(first + i) * row.stride];
        ups[i] = row.up[(first + i) * row.stride];
      }
      gate_vectors(row, gates, ups, count, row.out + first);
    }
  }

  static void activate(RowActivation kind, const float* x, std::int64_t count, float* out) {
    each(count, [&](std::int64_t i, int n) {
      store(out + i, activated(kind, load(x + i, n), 1.702f), n);
    });
  }

  static void softmax(const float* x, std::int64_t count, float* out) {
    if (count == 0) return;
    float largest = x[0];
    for (std::int64_t i = 1; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
    each(count, [&](std::int64_t i, int n) {
      store(out + i, exp(V::sub(load(x + i, n), V::set(largest))), n);
    });
    const F factor = V::set(1.0f / sum(out, count, [](F v) { return v; }));
    each(count,
         [&](std::int64_t i, int n) { store(out + i, V::mul(load(out + i, n), factor), n); });
  }

  static void add_scaled(const float* x, float scale, std::int64_t count, float* out) {
    each(count, [&](std::int64_t i, int n) {
      store(out + i, V::fma(load(x + i, n), V::set(scale), load(out + i, n)), n);
    });
  }
  static void scale(const float* x, float factor, std::int64_t count, float* out) {
    each(count,
         [&](std::int64_t i, int n) { store(out + i, V::mul(load(x + i, n), V::set(factor)), n); });
  }
  static void multiply(const float* x, const float* y, std::int64_t count, float* out) {
    each(count,
         [&](std::int64_t i, int n) { store(out + i, V::mul(load(x + i, n), load(y + i, n)), n); });
  }
  static void sigmoid_multiply(const float* x, const float* gate, std::int64_t count, float* out) {
    each(count, [&](std::int64_t i, int n) {
      store(out + i, V::mul(load(x + i, n), sigmoid(load(gate + i, n))), n);
    });
  }
  static void soft_cap(const float* x, float cap, std::int64_t count, float* out) {
    const F inverse = V::set(1.0f / cap);
    each(count, [&](std::int64_t i, int n) {
      store(out + i, V::mul(V::set(cap), tanh(V::mul(load(x + i, n), inverse))), n);
    });
  }

  template <DType T>
  static void narrow(const float* x, std::int64_t count, std::uint16_t* out) {
    each(count,
         [&](std::int64_t i, int n) { V::template store_as_n<T>(out + i, load(x + i, n), n); });
  }
  template <DType T>
  static void widen(const std::uint16_t* x, std::int64_t count, float* out) {
    each(count,
         [&](std::int64_t i, int n) { store(out + i, V::template load_as_n<T>(x + i, n), n); });
  }

  static constexpr RowKernels table(const char* name) {
    return {.name = name,
            .rms_norm = rms_norm,
            .layer_norm = layer_norm,
            .rope = rope,
            .gated = gated,
            .activate = activate,
            .softmax = softmax,
            .add_scaled = add_scaled,
            .scale = scale,
            .multiply = multiply,
            .sigmoid_multiply = sigmoid_multiply,
            .soft_cap = soft_cap,
            .to_bf16 = narrow<DType::bf16>,
            .from_bf16 = widen<DType::bf16>,
            .to_f16 = narrow<DType::f16>,
            .from_f16 = widen<DType::f16>};
  }
};

}  // namespace attune::kernels::ops
