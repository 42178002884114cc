// The recurrent form of linear attention: a token after the other, straight on the state in memory
// (layer kernels).
#pragma once

#include <cstdint>

#include "kernels/linear/gemm.hpp"
#include "kernels/linear/params.hpp"
#include "kernels/linear/policy.hpp"
#include "kernels/linear/prepare.hpp"
#include "kernels/linear/scratch.hpp"

namespace attune::kernels::linear {

template <class Unit>
struct Recurrent : Prepare<typename Unit::V> {
  using S = typename Unit::V;
  using Base = Prepare<S>;
  using Vec = typename S::F;
  using Scratch = linear::Scratch<typename Unit::Number>;
  using Base::delta_rule;
  using Base::exp;
  using Base::kWidth;
  using Base::padded;

  /// Rows of the state that a decode step takes together, sharing what it loads of q and k.
  static constexpr int kStepRows = kWidth > 1 ? kWidth / 4 : 1;

  static float* state_of(const Params& p, const Item& item, int h) {
    return p.state + item.slot * p.state_slot + static_cast<std::int64_t>(h) * p.dv * p.dk;
  }

  /// One token after the other from the item's token `first` on, straight on the state rows in
  /// memory: what decode is bound by is reading and writing them once.
  static void run(const Params& p, const Item& item, std::int64_t first, int first_head,
                  int num_heads, const Scratch& s) {
    const int dk = padded(p.dk);
    const int kh = first_head / (p.num_v_heads / p.num_k_heads);
    for (std::int64_t t = first; t < item.num_tokens; ++t) {
      const std::int64_t token = item.first_token + t;
      Base::prepare_rows(p, p.q, p.q_channel, kh, p.dk, token, 1, 1, s.q_conv, s.q);
      Base::prepare_rows(p, p.k, p.k_channel, kh, p.dk, token, 1, 1, s.k_conv, s.k);
      if (delta_rule(p)) {
        Base::normalise_rows(s.q, 1, dk, 1.0f / __builtin_sqrtf(static_cast<float>(p.dk)));
        Base::normalise_rows(s.k, 1, dk, 1.0f);
      }
      for (int n = 0; n < num_heads; ++n) {
        const int h = first_head + n;
        Base::prepare_rows(p, p.v, p.v_channel, h, p.dv, token, 1, 1, s.v_conv[n], s.v);
        Base::prepare_gates(p, h, token, 1, 1, s.g, s.beta);
        step(p, h, token, state_of(p, item, h), s);
      }
    }
  }

  /// With sd = S decayed: u = beta (v - sd k), S = sd + u k, o = S q = sd q + u (k q): one pass
  /// over a row to learn u and o while it sits in registers, one to write it.
  static void step(const Params& p, int h, std::int64_t token, float* state, const Scratch& s) {
    const int dk = padded(p.dk);
    const bool by_channel = p.family == Family::kda;
    const bool erases = delta_rule(p);
    const Vec one = exp(S::set(by_channel ? 0.0f : s.g[0]));
    Vec kq_sum = S::zero();
    for (int c = 0; c < dk; c += kWidth) {
      kq_sum = S::fma(S::load(s.k + c), S::load(s.q + c), kq_sum);
      S::store(s.row + c, by_channel ? exp(S::load(s.g + c)) : one);
      S::store(s.kg + c, S::mul(S::load(s.k + c), S::load(s.row + c)));
      S::store(s.qg + c, S::mul(S::load(s.q + c), S::load(s.row + c)));
    }
    const float kq = S::sum(kq_sum);
    const float beta = s.beta[0];
    const float skip = p.d_skip != nullptr ? p.d_skip[h] : 0.0f;
    const std::int64_t out = token * p.o_row + static_cast<std::int64_t>(h) * p.dv;
    const bool whole = p.dk % kWidth == 0;
    int d = 0;
    if (whole)
      for (; d + kStepRows <= p.dv; d += kStepRows) {
        if (erases) {
          step_rows<kStepRows, true>(p, beta, kq, skip, d, state, s);
        } else {
          step_rows<kStepRows, false>(p, beta, kq, skip, d, state, s);
        }
      }
    for (; d < p.dv; ++d) step_row(p, beta, kq, skip, d, state, s);
    for (int c = 0; c < p.dv; c += kWidth)
      Base::store_activations(p.o, p.bf16, out + c, S::load_n(s.so + c, p.dv - c), p.dv - c);
  }

  /// kRows rows of the state from row d on, of whole vectors.
  template <int kRows, bool kErases>
  static void step_rows(const Params& p, float beta, float kq, float skip, int d, float* state,
                        const Scratch& s) {
    float* rows = state + static_cast<std::int64_t>(d) * p.dk;
    Vec sums[2 * kRows];  // state times key, state times query
    for (int r = 0; r < 2 * kRows; ++r) sums[r] = S::zero();
    for (int c = 0; c < p.dk; c += kWidth) {
      const Vec kg = S::load(s.kg + c);
      const Vec qg = S::load(s.qg + c);
      for (int r = 0; r < kRows; ++r) {
        const float* at = rows + static_cast<std::int64_t>(r) * p.dk + c;
        S::prefetch(at + kAhead);
        const Vec old = S::load(at);
        if (kErases) sums[r] = S::fma(old, kg, sums[r]);
        sums[kRows + r] = S::fma(old, qg, sums[kRows + r]);
      }
    }
    Vec write[kRows];
    for (int r = 0; r < kRows; ++r) {
      const float u = beta * (kErases ? s.v[d + r] - S::sum(sums[r]) : s.v[d + r]);
      s.so[d + r] = S::sum(sums[kRows + r]) + u * kq + skip * s.v[d + r];
      write[r] = S::set(u);
    }
    for (int c = 0; c < p.dk; c += kWidth) {
      const Vec k = S::load(s.k + c);
      const Vec decay = S::load(s.row + c);
      for (int r = 0; r < kRows; ++r) {
        float* at = rows + static_cast<std::int64_t>(r) * p.dk + c;
        S::store(at, S::fma(write[r], k, S::mul(S::load(at), decay)));
      }
    }
  }

  static void step_row(const Params& p, float beta, float kq, float skip, int d, float* state,
                       const Scratch& s) {
    float* row = state + static_cast<std::int64_t>(d) * p.dk;
    Vec sk = S::zero();
    Vec sq = S::zero();
    for (int c = 0; c < p.dk; c += kWidth) {
      const Vec old = S::load_n(row + c, p.dk - c);
      sk = S::fma(old, S::load(s.kg + c), sk);
      sq = S::fma(old, S::load(s.qg + c), sq);
    }
    const float u = beta * (delta_rule(p) ? s.v[d] - S::sum(sk) : s.v[d]);
    const Vec write = S::set(u);
    for (int c = 0; c < p.dk; c += kWidth) {
      const int n = p.dk - c;
      const Vec decayed = S::mul(S::load_n(row + c, n), S::load(s.row + c));
      S::store_n(row + c, S::fma(write, S::load(s.k + c), decayed), n);
    }
    s.so[d] = S::sum(sq) + u * kq + skip * s.v[d];
  }
};

}  // namespace attune::kernels::linear
