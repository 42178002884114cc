// Linear attention over one request's rows for a few heads: the chunked (parallel) form for
// prompts, the recurrent one for a few tokens (layer kernels). Template on the unit that multiplies
// chunks; the mathematics is in docs/kernels/linear.md.
//
// One item works alone: it convolves, normalises and gates what it needs chunk by chunk into a
// thread's scratch memory, keeps its heads' states transposed there, and touches main memory once
// for inputs, once for o and twice for the state. Heads that read one key head share its rows and
// products.
#pragma once

#include <cstdint>

#include <attune/tensor.hpp>

#include "kernels/linear/decays.hpp"
#include "kernels/linear/gemm.hpp"
#include "kernels/linear/params.hpp"
#include "kernels/linear/policy.hpp"
#include "kernels/linear/prepare.hpp"
#include "kernels/linear/recurrent.hpp"
#include "kernels/linear/scratch.hpp"

namespace attune::kernels::linear {

template <class Unit>
struct Body : Prepare<typename Unit::V> {
  using S = typename Unit::V;
  using Base = Prepare<S>;
  using Vec = typename S::F;
  using Number = typename Unit::Number;
  using As = Operands<Unit>;
  using Scratch = linear::Scratch<Number>;
  using Decay = Decays<Unit>;
  using OneByOne = Recurrent<Unit>;
  /// Of the triangular system, whose errors later tokens would multiply.
  using Exact = dense::FmaUnit<S>;
  using Base::delta_rule;
  using Base::kWidth;
  using Base::padded;

  static std::int64_t scratch_floats(const Params& p) { return lay_out<Unit>(p, nullptr, nullptr); }

  /// out[j, i] = in[i, j] for `rows` x `columns` numbers; whole blocks of lanes where they fit.
  static void transpose(const float* in, int rows, int columns, int in_row, float* out,
                        int out_row) {
    for (int i = 0; i < rows; i += kWidth)
      for (int j = 0; j < columns; j += kWidth) {
        Vec block[kWidth];
        for (int r = 0; r < kWidth; ++r)
          block[r] = i + r < rows ? S::load_n(in + static_cast<std::int64_t>(i + r) * in_row + j,
                                              columns - j)
                                  : S::zero();
        S::transpose(block);
        for (int c = 0; c < kWidth; ++c)
          if (j + c < columns)
            S::store_n(out + static_cast<std::int64_t>(j + c) * out_row + i, block[c], rows - i);
      }
  }

  /// Blocks of c on and below the diagonal: c = a times the transposed keys, both [rows, …].
  static void product_below(const Number* a, int a_row, const Scratch& s, float* c, int rows,
                            int depth) {
    for (int i = 0; i < rows; i += kBlock) {
      const std::int64_t row = static_cast<std::int64_t>(i);
      product<Unit>({a + row * a_row, a_row}, s.k_columns, kChunk, c + row * kChunk, kChunk, kBlock,
                    i + kBlock, depth);
    }
  }

  /// so: k and q times the state, decays aside; u = (I + erase)^-1 (beta (v - decayed k S)), and
  /// beta v without the delta rule.
  static void solve(const Params& p, const Scratch& s, const float* state, int rows) {
    const int dk = padded(p.dk);
    const int dv = padded(p.dv);
    const bool erases = delta_rule(p);
    const bool by_channel = p.family == Family::kda;
    const std::int64_t half = static_cast<std::int64_t>(kChunk) * dv;
    const Number* old = As::pairs(state, dk, dv, s.state_pairs);
    const Number* q = As::rows(by_channel ? s.qg : s.q, rows, dk, s.q_rows);
    product<Unit>({q, dk}, old, dv, s.so + half, dv, rows, dv, p.dk);
    if (erases) {
      const Number* k = As::rows(by_channel ? s.kg : s.k, rows, dk, s.k_rows);
      product<Unit>({k, dk}, old, dv, s.so, dv, rows, dv, p.dk);
    }
    for (int t = 0; t < rows; ++t) {
      const Vec beta = S::set(s.beta[t]);
      const Vec minus_since = S::set(-s.since[t]);
      for (int d = 0; d < dv; d += kWidth) {
        const std::int64_t at = static_cast<std::int64_t>(t) * dv + d;
        const Vec v = S::load(s.v + at);
        S::store(s.u + at, S::mul(beta, erases ? S::fma(minus_since, S::load(s.so + at), v) : v));
      }
    }
    if (!erases) return;
    for (int i0 = 0; i0 < rows; i0 += kBlock) {
      if (i0 > 0) {
        product<Exact>({s.erase + static_cast<std::int64_t>(i0) * kChunk, kChunk}, s.u, dv, s.so,
                       dv, kBlock, dv, i0);
        for (int at = 0; at < kBlock * dv; at += kWidth) {
          float* u = s.u + static_cast<std::int64_t>(i0) * dv + at;
          S::store(u, S::sub(S::load(u), S::load(s.so + at)));
        }
      }
      int d = 0;
      for (; d + 4 * kWidth <= dv; d += 4 * kWidth) substitute<4>(s, i0, dv, d);
      for (; d < dv; d += kWidth) substitute<1>(s, i0, dv, d);
    }
  }

  /// Forward substitution inside a block, for kVectors columns at once.
  template <int kVectors>
  static void substitute(const Scratch& s, int i0, int dv, int d) {
    for (int i = i0 + 1; i < i0 + kBlock; ++i) {
      float* to = s.u + static_cast<std::int64_t>(i) * dv + d;
      Vec left[kVectors];
      for (int v = 0; v < kVectors; ++v) left[v] = S::load(to + v * kWidth);
      for (int j = i0; j < i; ++j) {
        const Vec factor = S::set(-s.erase[static_cast<std::int64_t>(i) * kChunk + j]);
        const float* from = s.u + static_cast<std::int64_t>(j) * dv + d;
        for (int v = 0; v < kVectors; ++v)
          left[v] = S::fma(factor, S::load(from + v * kWidth), left[v]);
      }
      for (int v = 0; v < kVectors; ++v) S::store(to + v * kWidth, left[v]);
    }
  }

  static void output(const Params& p, std::int64_t token, int h, int count, int rows,
                     const Scratch& s) {
    const int dv = padded(p.dv);
    float* o = s.so + static_cast<std::int64_t>(kChunk) * dv;
    const Number* scores = As::rows(s.scores, rows, kChunk, s.score_rows);
    const Number* u = As::pairs(s.u, rows, dv, s.u_pairs);
    for (int i0 = 0; i0 < rows; i0 += kBlock)
      product<Unit>({scores + static_cast<std::int64_t>(i0) * kChunk, kChunk}, u, dv,
                    o + static_cast<std::int64_t>(i0) * dv, dv, kBlock, dv, i0 + kBlock,
                    {s.since + i0, 1});
    const Vec skip = S::set(p.d_skip != nullptr ? p.d_skip[h] : 0.0f);
    for (int t = 0; t < count; ++t) {
      const std::int64_t row = (token + t) * p.o_row + static_cast<std::int64_t>(h) * p.dv;
      for (int d = 0; d < p.dv; d += kWidth) {
        const std::int64_t at = static_cast<std::int64_t>(t) * dv + d;
        Base::store_activations(p.o, p.bf16, row + d,
                                S::fma(skip, S::load(s.v + at), S::load(o + at)), p.dv - d);
      }
    }
  }

  static void advance(const Params& p, const Scratch& s, float* state, int rows) {
    const int dk = padded(p.dk);
    const int dv = padded(p.dv);
    const bool by_channel = p.family == Family::kda;
    for (int t = 0; t < rows && !by_channel; ++t) {
      const Vec until = S::set(s.until[t]);
      float* u = s.u + static_cast<std::int64_t>(t) * dv;
      for (int d = 0; d < dv; d += kWidth) S::store(u + d, S::mul(S::load(u + d), until));
    }
    const Number* k = As::pairs(by_channel ? s.kd : s.k, rows, dk, s.k_pairs);
    const Number* u = As::pairs(s.u, rows, dv, s.u_pairs);
    product<Unit>({k, Unit::kPair, static_cast<std::int64_t>(dk) * Unit::kPair}, u, dv, state, dv,
                  p.dk, dv, rows, {s.row, 1});
  }

  static void sum_gates(const Params& p, const Scratch& s, int rows) {
    const int width = p.family == Family::kda ? padded(p.dk) : 1;
    for (int at = width; at < rows * width; ++at) s.g[at] += s.g[at - width];
  }

  /// Of the key head that some heads share: q, k, and what does not depend on decays.
  static void prepare_keys(const Params& p, std::int64_t token, int kh, int count, int rows,
                           const Scratch& s) {
    const int dk = padded(p.dk);
    Base::prepare_rows(p, p.q, p.q_channel, kh, p.dk, token, count, rows, s.q_conv, s.q);
    Base::prepare_rows(p, p.k, p.k_channel, kh, p.dk, token, count, rows, s.k_conv, s.k);
    if (delta_rule(p)) {
      Base::normalise_rows(s.q, count, dk, 1.0f / __builtin_sqrtf(static_cast<float>(p.dk)));
      Base::normalise_rows(s.k, count, dk, 1.0f);
    }
    if (p.family == Family::kda) return;
    for (int c = 0; c < dk; c += kWidth) S::store(s.between + c, S::set(1.0f));
    As::transposed(s.k, s.between, rows, dk, s.k_columns, kChunk);
    product_below(As::rows(s.q, rows, dk, s.q_rows), dk, s, s.qk, rows, p.dk);
    if (delta_rule(p)) product_below(As::rows(s.k, rows, dk, s.k_rows), dk, s, s.kk, rows, p.dk);
  }

  static void begin_convolutions(const Params& p, const Item& item, int first_head, int num_heads,
                                 const Scratch& s) {
    if (p.conv_kernel == 0) return;
    const int kh = first_head / (p.num_v_heads / p.num_k_heads);
    Base::begin_convolution(p, item.slot, p.q_channel + kh * p.dk, p.dk, s.q_conv);
    Base::begin_convolution(p, item.slot, p.k_channel + kh * p.dk, p.dk, s.k_conv);
    for (int n = 0; n < num_heads; ++n)
      Base::begin_convolution(p, item.slot, p.v_channel + (first_head + n) * p.dv, p.dv,
                              s.v_conv[n]);
  }

  /// The item's first `num_tokens`, for heads [first_head, first_head + num_heads), which share a
  /// key head. The convolutions have begun.
  static void chunked(const Params& p, const Item& item, std::int64_t num_tokens, int first_head,
                      int num_heads, const Scratch& s) {
    const int dk = padded(p.dk);
    const int dv = padded(p.dv);
    const std::int64_t state_floats = static_cast<std::int64_t>(dk) * dv;
    for (std::int64_t at = 0; at < num_heads * state_floats; at += kWidth)
      S::store(s.state + at, S::zero());
    for (int c = 0; c < dk && p.family == Family::kda; c += kWidth)
      S::store(s.g - dk + c, S::zero());
    for (int n = 0; n < num_heads; ++n)
      transpose(OneByOne::state_of(p, item, first_head + n), p.dv, p.dk, p.dk,
                s.state + n * state_floats, dv);
    for (std::int64_t first = 0; first < num_tokens; first += kChunk) {
      const std::int64_t left = num_tokens - first;
      const int count = left < kChunk ? static_cast<int>(left) : kChunk;
      const int rows = (count + kBlock - 1) / kBlock * kBlock;
      const std::int64_t token = item.first_token + first;
      prepare_keys(p, token, first_head / (p.num_v_heads / p.num_k_heads), count, rows, s);
      for (int n = 0; n < num_heads; ++n) {
        const int h = first_head + n;
        float* state = s.state + n * state_floats;
        Base::prepare_rows(p, p.v, p.v_channel, h, p.dv, token, count, rows, s.v_conv[n], s.v);
        Base::prepare_gates(p, h, token, count, rows, s.g, s.beta);
        sum_gates(p, s, rows);
        int span = kChunk;
        if (p.family == Family::kda) {
          span = p.batch_invariant ? kBlock : Decay::decay_span(s, rows, dk);
          Decay::decay_scores_by_channel(p, s, rows, span);
        } else {
          Decay::decay_scores(p, s, rows);
        }
        Decay::decay_rows(p, s, rows, span);
        solve(p, s, state, rows);
        output(p, token, h, count, rows, s);
        advance(p, s, state, rows);
      }
    }
    for (int n = 0; n < num_heads; ++n)
      transpose(s.state + n * state_floats, p.dk, p.dv, dv,
                OneByOne::state_of(p, item, first_head + n), p.dk);
  }

  static void run(const Params& p, const Item& item, float* scratch) {
    if (item.slot < 0 || item.num_tokens == 0) return;
    Scratch s;
    lay_out<Unit>(p, scratch, &s);
    const int ratio = p.num_v_heads / p.num_k_heads;
    const int end = item.first_head + item.num_heads;
    // A request cut at a multiple of kChunk is computed in the same forms, to the same bits.
    const std::int64_t rest = item.num_tokens % kChunk;
    const std::int64_t parallel = item.num_tokens - (rest < kRecurrentBelow ? rest : 0);
    for (int h = item.first_head; h < end;) {
      const int group_end = (h / ratio + 1) * ratio;
      int num_heads = (group_end < end ? group_end : end) - h;
      if (num_heads > kSharedHeads) num_heads = kSharedHeads;
      begin_convolutions(p, item, h, num_heads, s);
      if (parallel > 0) chunked(p, item, parallel, h, num_heads, s);
      if (parallel < item.num_tokens) OneByOne::run(p, item, parallel, h, num_heads, s);
      h += num_heads;
    }
  }
};

}  // namespace attune::kernels::linear
