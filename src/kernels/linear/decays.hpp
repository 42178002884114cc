// How tokens of a chunk decay towards each other (layer kernels): the scores of q and of k with k
// under their decay, masked, and what each token loses since the chunk's begin and until its end.
#pragma once

#include <cstdint>

#include "kernels/linear/gemm.hpp"
#include "kernels/linear/params.hpp"
#include "kernels/linear/policy.hpp"
#include "kernels/linear/prepare.hpp"
#include "kernels/linear/scratch.hpp"

namespace attune::kernels::linear {

template <class Unit>
struct Decays : Prepare<typename Unit::V> {
  using S = typename Unit::V;
  using Base = Prepare<S>;
  using Vec = typename S::F;
  using Number = typename Unit::Number;
  using As = Operands<Unit>;
  using Scratch = linear::Scratch<Number>;
  using Base::delta_rule;
  using Base::exp;
  using Base::keep_below;
  using Base::kWidth;
  using Base::min;
  using Base::padded;

  /// Factors of this exponent, both ways, and their products stay normal numbers in fp32.
  static constexpr float kFactorRange = 60.0f;

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
};

}  // namespace attune::kernels::linear
