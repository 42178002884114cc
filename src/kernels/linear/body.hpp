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

#include "kernels/linear/gemm.hpp"
#include "kernels/linear/params.hpp"
#include "kernels/linear/policy.hpp"
#include "kernels/linear/prepare.hpp"

namespace attune::kernels::linear {

/// A thread's scratch memory, laid out for one Params. Rows are padded to kPadding floats.
template <class Number>
struct Scratch {
  float* q;        ///< [kChunk, dk]
  float* k;        ///< [kChunk, dk]
  float* qg;       ///< [kChunk, dk] kda: q times its decay since the span or chunk began
  float* kg;       ///< [kChunk, dk] likewise k
  float* kd;       ///< [kChunk, dk] kda: k times its decay until the span's or the chunk's end
  float* v;        ///< [kChunk, dv]
  float* u;        ///< [kChunk, dv] what is written to the state
  float* so;       ///< [2 * kChunk, dv] k and q times the state; the second half becomes o
  float* qk;       ///< [kChunk, kChunk]
  float* kk;       ///< [kChunk, kChunk]
  float* scores;   ///< [kChunk, kChunk] qk, decayed and masked
  float* erase;    ///< [kChunk, kChunk] kk, decayed, masked, times beta
  float* g;        ///< [kChunk] or [kChunk, dk]: log decay summed from the chunk's begin; kda has a
                   ///< row of zeros before it
  float* beta;     ///< [kChunk]
  float* since;    ///< [kChunk] decay since the chunk's begin
  float* until;    ///< [kChunk] decay until its end
  float* state;    ///< [kSharedHeads, dk, dv]
  float* row;      ///< [dk] decay of the state's rows
  float* between;  ///< [dk] decay from one span's end to another's begin; ones for other families

  Number* k_columns;  ///< [dk / kPair, kChunk, kPair] k transposed
  // Rounded copies, where the unit wants other numbers than fp32:
  Number* q_rows;       ///< of q or qg
  Number* k_rows;       ///< of k or kg
  Number* k_pairs;      ///< of k or kd
  Number* state_pairs;  ///< of one head's state
  Number* u_pairs;      ///< of u
  Number* score_rows;   ///< of scores

  ConvolutionScratch q_conv, k_conv;
  ConvolutionScratch v_conv[kSharedHeads];
};

template <class Unit>
struct Body : Prepare<typename Unit::V> {
  using S = typename Unit::V;
  using Base = Prepare<S>;
  using Vec = typename S::F;
  using Number = typename Unit::Number;
  using As = Operands<Unit>;
  using Left = LeftOperand<Unit>;
  using Scratch = linear::Scratch<Number>;
  /// Of the triangular system, whose errors later tokens would multiply.
  using Exact = dense::FmaUnit<S>;
  using Base::delta_rule;
  using Base::exp;
  using Base::keep_below;
  using Base::kWidth;
  using Base::min;
  using Base::padded;

  /// Factors of this exponent, both ways, and their products stay normal numbers in fp32.
  static constexpr float kFactorRange = 60.0f;
  /// Rows of the state that a decode step takes together, sharing what it loads of q and k.
  static constexpr int kStepRows = kWidth > 1 ? kWidth / 4 : 1;

  /// Lays the parts out one after the other; with a null base it only counts.
  static std::int64_t lay_out(const Params& p, float* base, Scratch* out) {
    const std::int64_t dk = padded(p.dk);
    const std::int64_t dv = padded(p.dv);
    std::int64_t used = 0;
    const auto take = [&](std::int64_t floats) {
      float* at = base == nullptr ? nullptr : base + used;
      used += floats;
      return at;
    };
    const auto take_convolution = [&](std::int64_t width) {
      ConvolutionScratch conv;
      conv.taps = take((kMaxTaps + 1) * width);
      conv.history = take((kMaxTaps - 1) * width);
      return conv;
    };
    Scratch s;
    s.q = take(kChunk * dk);
    s.k = take(kChunk * dk);
    s.kg = take(kChunk * dk);
    s.qg = take(kChunk * dk);
    s.kd = take(kChunk * dk);
    s.v = take(kChunk * dv);
    s.u = take(kChunk * dv);
    s.so = take(2 * kChunk * dv);
    s.qk = take(kChunk * kChunk);
    s.kk = take(kChunk * kChunk);
    s.scores = take(kChunk * kChunk);
    s.erase = take(kChunk * kChunk);
    s.g = p.family == Family::kda ? take((1 + kChunk) * dk) : take(kChunk);
    if (base != nullptr && p.family == Family::kda) s.g += dk;
    s.beta = take(kChunk);
    s.since = take(kChunk);
    s.until = take(kChunk);
    s.state = take(kSharedHeads * dk * dv);
    s.row = take(dk);
    s.between = take(dk);
    const auto take_numbers = [&](std::int64_t numbers) {
      const auto bytes = numbers * static_cast<std::int64_t>(sizeof(Number));
      return reinterpret_cast<Number*>(take(bytes / static_cast<std::int64_t>(sizeof(float))));
    };
    s.k_columns = take_numbers(dk * kChunk);
    if constexpr (!As::kAsTheyAre) {
      s.q_rows = take_numbers(kChunk * dk);
      s.k_rows = take_numbers(kChunk * dk);
      s.k_pairs = take_numbers(kChunk * dk);
      s.state_pairs = take_numbers(dk * dv);
      s.u_pairs = take_numbers(kChunk * dv);
      s.score_rows = take_numbers(kChunk * kChunk);
    }
    s.q_conv = take_convolution(dk);
    s.k_conv = take_convolution(dk);
    for (ConvolutionScratch& conv : s.v_conv) conv = take_convolution(dv);
    if (out != nullptr) *out = s;
    return used;
  }

  static std::int64_t scratch_floats(const Params& p) { return lay_out(p, nullptr, nullptr); }

  // ---- the chunked form ---------------------------------------------------------------------

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

  /// scores and erase of a family whose decay is one number a token.
  static void decay_scores(const Params& p, const Scratch& s, int rows) {
    for (int i = 0; i < rows; ++i) {
      const Vec gi = S::set(s.g[i]);
      const Vec bi = S::set(s.beta[i]);
      const int end = i / kBlock * kBlock + kBlock;  // nobody reads further right
      for (int j = 0; j < end; j += kWidth) {
        const std::int64_t at = static_cast<std::int64_t>(i) * kChunk + j;
        // Above the diagonal the exponent would be positive: min() keeps it finite, keep_below()
        // removes it.
        const Vec decay = exp(min(S::sub(gi, S::load(s.g + j)), S::zero()));
        S::store(s.scores + at, keep_below(S::mul(S::load(s.qk + at), decay), i - j + 1));
        if (delta_rule(p))
          S::store(s.erase + at, keep_below(S::mul(S::mul(S::load(s.kk + at), decay), bi), i - j));
      }
    }
  }

  /// Tokens over which no channel of kda decays beyond kFactorRange: a chunk or a part of it. At
  /// least kBlock, whose blocks may decay further.
  static int decay_span(const Scratch& s, int rows, int width) {
    for (int span = kChunk; span > kBlock; span /= 2) {
      float most = 0.0f;
      for (int t = 0; t < rows; t += span) {
        const float over = decay_over(s, t, t + span < rows ? t + span : rows, width);
        most = over > most ? over : most;
      }
      if (most < kFactorRange) return span;
    }
    return kBlock;
  }

  /// The largest logarithm, over the channels, by which tokens [from, to) decay.
  static float decay_over(const Scratch& s, int from, int to, int width) {
    const float* before = decay_before(s, from, width);
    const float* last = decay_before(s, to, width);
    Vec most = S::zero();
    for (int c = 0; c < width; c += kWidth)
      most = S::max(most, S::sub(S::load(before + c), S::load(last + c)));
    return S::largest(most);
  }
  /// kda: the logarithm of what has decayed before token t of the chunk.
  static const float* decay_before(const Scratch& s, int t, int width) {
    return s.g + static_cast<std::int64_t>(t - 1) * width;
  }

  /// scores and erase of kda, whose decay differs by channel. It is split at the begin of the later
  /// token's span and the end of the earlier one's: three factors below 1 where the spans differ,
  /// and where they are one, factors that kFactorRange bounds.
  static void decay_scores_by_channel(const Params& p, const Scratch& s, int rows, int span) {
    const int width = padded(p.dk);
    for (int t0 = 0; t0 < rows; t0 += span) decay_within_span(s, t0, end_of(t0, span, rows), width);
    const Number* q = As::rows(s.qg, rows, width, s.q_rows);
    const Number* k = As::rows(s.kg, rows, width, s.k_rows);
    for (int i0 = 0; i0 < rows; i0 += span) {
      const int end = end_of(i0, span, rows);
      const bool factors =
          span > kBlock || (!p.batch_invariant && decay_over(s, i0, end, width) < kFactorRange);
      for (int j0 = 0; j0 < i0 + (factors ? span : 0); j0 += span) {
        const int j_end = end_of(j0, span, rows);
        const float* to = decay_before(s, i0, width);
        const float* from = decay_before(s, j_end, width);
        for (int c = 0; c < width; c += kWidth)
          S::store(s.between + c, exp(S::sub(S::load(to + c), S::load(from + c))));
        As::transposed(s.kd + static_cast<std::int64_t>(j0) * width, s.between, j_end - j0, width,
                       s.k_columns + j0 * Unit::kPair, kChunk);
      }
      for (int i = i0; i < end; i += kBlock) {
        const std::int64_t from = static_cast<std::int64_t>(i) * width;
        const std::int64_t to = static_cast<std::int64_t>(i) * kChunk;
        const int columns = factors ? i + kBlock : i0;
        product<Unit>({q + from, width}, s.k_columns, kChunk, s.scores + to, kChunk, kBlock,
                      columns, p.dk);
        product<Unit>({k + from, width}, s.k_columns, kChunk, s.erase + to, kChunk, kBlock, columns,
                      p.dk);
      }
      if (!factors) diagonal_by_differences(p, s, i0);
    }
    for (int t = 0; t < rows; ++t) {
      const Vec beta = S::set(s.beta[t]);
      const int end = t / kBlock * kBlock + kBlock;
      for (int j = 0; j < end; j += kWidth) {
        const std::int64_t at = static_cast<std::int64_t>(t) * kChunk + j;
        S::store(s.scores + at, keep_below(S::load(s.scores + at), t - j + 1));
        S::store(s.erase + at, keep_below(S::mul(S::load(s.erase + at), beta), t - j));
      }
    }
  }

  static int end_of(int begin, int span, int rows) {
    return begin + span < rows ? begin + span : rows;
  }

  /// qg, kg: q and k times their decay since the span's begin; kd: k times its decay until its end.
  static void decay_within_span(const Scratch& s, int begin, int end, int width) {
    const float* before = decay_before(s, begin, width);
    const float* last = decay_before(s, end, width);
    for (int t = begin; t < end; ++t)
      for (int c = 0; c < width; c += kWidth) {
        const std::int64_t at = static_cast<std::int64_t>(t) * width + c;
        const Vec g = S::load(s.g + at);
        const Vec k = S::load(s.k + at);
        const Vec since = exp(S::sub(g, S::load(before + c)));
        S::store(s.qg + at, S::mul(S::load(s.q + at), since));
        S::store(s.kg + at, S::mul(k, since));
        S::store(s.kd + at, S::mul(k, exp(S::sub(S::load(last + c), g))));
      }
  }

  /// qg, kg and kd of a span become those of the chunk.
  static void decay_span_over_chunk(const Scratch& s, int begin, int end, int rows, int width) {
    const float* before = decay_before(s, begin, width);
    const float* last = decay_before(s, end, width);
    const float* chunk_end = decay_before(s, rows, width);
    for (int c = 0; c < width; c += kWidth) {
      const Vec since = exp(S::load(before + c));
      const Vec until = exp(S::sub(S::load(chunk_end + c), S::load(last + c)));
      for (int t = begin; t < end; ++t) {
        const std::int64_t at = static_cast<std::int64_t>(t) * width + c;
        S::store(s.qg + at, S::mul(S::load(s.qg + at), since));
        S::store(s.kg + at, S::mul(S::load(s.kg + at), since));
        S::store(s.kd + at, S::mul(S::load(s.kd + at), until));
      }
    }
  }

  /// Inside a block, for decays of any strength: the difference of exponents pair by pair.
  static void diagonal_by_differences(const Params& p, const Scratch& s, int i0) {
    const int width = padded(p.dk);
    for (int i = i0; i < i0 + kBlock; ++i)
      for (int j = i0; j < i0 + kBlock; ++j) {
        float qk = 0.0f;
        float kk = 0.0f;
        if (j <= i) {
          Vec qk_sum = S::zero();
          Vec kk_sum = S::zero();
          const std::int64_t a = static_cast<std::int64_t>(i) * width;
          const std::int64_t b = static_cast<std::int64_t>(j) * width;
          for (int c = 0; c < width; c += kWidth) {
            const Vec decayed = S::mul(S::load(s.k + b + c),
                                       exp(S::sub(S::load(s.g + a + c), S::load(s.g + b + c))));
            qk_sum = S::fma(S::load(s.q + a + c), decayed, qk_sum);
            kk_sum = S::fma(S::load(s.k + a + c), decayed, kk_sum);
          }
          qk = S::sum(qk_sum);
          kk = j < i ? S::sum(kk_sum) : 0.0f;
        }
        s.scores[static_cast<std::int64_t>(i) * kChunk + j] = qk;
        s.erase[static_cast<std::int64_t>(i) * kChunk + j] = kk;
      }
  }

  /// since and until: every token's decay since the chunk's begin and until its end. kda, whose
  /// decay differs by channel, has it inside qg, kg and kd instead, and ones here.
  static void decay_rows(const Params& p, const Scratch& s, int rows, int span) {
    const int width = padded(p.dk);
    if (p.family != Family::kda) {
      const Vec end = S::set(s.g[rows - 1]);
      for (int t = 0; t < rows; t += kWidth) {
        S::store(s.since + t, exp(S::load(s.g + t)));
        S::store(s.until + t, exp(S::sub(end, S::load(s.g + t))));
      }
      for (int c = 0; c < width; c += kWidth) S::store(s.row + c, exp(end));
      return;
    }
    for (int t = 0; t < rows; t += kWidth) S::store(s.since + t, S::set(1.0f));
    const float* end = decay_before(s, rows, width);
    for (int c = 0; c < width; c += kWidth) S::store(s.row + c, exp(S::load(end + c)));
    // Where nothing may depend on the number of rows, also over a single span: a factor of e^0 is 1
    // but for the last bit.
    if (span >= rows && !p.batch_invariant) return;
    for (int t0 = 0; t0 < rows; t0 += span)
      decay_span_over_chunk(s, t0, end_of(t0, span, rows), rows, width);
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

  static float* state_of(const Params& p, const Item& item, int h) {
    return p.state + item.slot * p.state_slot + static_cast<std::int64_t>(h) * p.dv * p.dk;
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
      transpose(state_of(p, item, first_head + n), p.dv, p.dk, p.dk, s.state + n * state_floats,
                dv);
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
          span = p.batch_invariant ? kBlock : decay_span(s, rows, dk);
          decay_scores_by_channel(p, s, rows, span);
        } else {
          decay_scores(p, s, rows);
        }
        decay_rows(p, s, rows, span);
        solve(p, s, state, rows);
        output(p, token, h, count, rows, s);
        advance(p, s, state, rows);
      }
    }
    for (int n = 0; n < num_heads; ++n)
      transpose(s.state + n * state_floats, p.dk, p.dv, dv, state_of(p, item, first_head + n),
                p.dk);
  }

  // ---- the recurrent form -------------------------------------------------------------------

  /// One token after the other from the item's token `first` on, straight on the state rows in
  /// memory: what decode is bound by is reading and writing them once.
  static void recurrent(const Params& p, const Item& item, std::int64_t first, int first_head,
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

  static void run(const Params& p, const Item& item, float* scratch) {
    if (item.slot < 0 || item.num_tokens == 0) return;
    Scratch s;
    lay_out(p, scratch, &s);
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
      if (parallel < item.num_tokens) recurrent(p, item, parallel, h, num_heads, s);
      h += num_heads;
    }
  }
};

}  // namespace attune::kernels::linear
