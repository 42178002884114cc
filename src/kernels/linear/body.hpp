// Linear attention over one request's rows for a few heads: the chunked (parallel) form for
// prompts, the recurrent one for a few tokens (layer kernels). Template on the SIMD type; the
// mathematics is in docs/kernels/linear.md.
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
struct Scratch {
  float* q;       ///< [kChunk, dk]
  float* k;       ///< [kChunk, dk]
  float* qg;      ///< [kChunk, dk] kda: q times its decay since the chunk began
  float* kg;      ///< [kChunk, dk] likewise k
  float* kd;      ///< [kChunk, dk] kda: k times its decay until the chunk's end
  float* kt;      ///< [dk, kChunk] k transposed
  float* v;       ///< [kChunk, dv]
  float* u;       ///< [kChunk, dv] what is written to the state
  float* so;      ///< [2 * kChunk, dv] k and q times the state; the second half becomes o
  float* qk;      ///< [kChunk, kChunk]
  float* kk;      ///< [kChunk, kChunk]
  float* scores;  ///< [kChunk, kChunk] qk, decayed and masked
  float* erase;   ///< [kChunk, kChunk] kk, decayed, masked, times beta
  float* g;       ///< [kChunk] or [kChunk, dk]: log decay summed from the chunk's begin
  float* beta;    ///< [kChunk]
  float* since;   ///< [kChunk] decay since the chunk's begin
  float* until;   ///< [kChunk] decay until its end
  float* state;   ///< [kSharedHeads, dk, dv]
  float* row;     ///< [dk] decay of the state's rows
  float* block;   ///< kda: [3 * kBlock, dk] rows of one block with decays of their own
  ConvolutionScratch q_conv, k_conv;
  ConvolutionScratch v_conv[kSharedHeads];
};

template <class S>
struct Body : Prepare<S> {
  using Base = Prepare<S>;
  using Vec = typename S::F;
  using Base::delta_rule;
  using Base::exp;
  using Base::keep_below;
  using Base::kWidth;
  using Base::min;
  using Base::padded;

  /// Two factors of at most half this exponent each, and their product, are finite in fp32.
  static constexpr float kFactorRange = 80.0f;
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
    s.kt = take(dk * kChunk);
    s.v = take(kChunk * dv);
    s.u = take(kChunk * dv);
    s.so = take(2 * kChunk * dv);
    s.qk = take(kChunk * kChunk);
    s.kk = take(kChunk * kChunk);
    s.scores = take(kChunk * kChunk);
    s.erase = take(kChunk * kChunk);
    s.g = take(kChunk * (p.family == Family::kda ? dk : 1));
    s.beta = take(kChunk);
    s.since = take(kChunk);
    s.until = take(kChunk);
    s.state = take(kSharedHeads * dk * dv);
    s.row = take(dk);
    s.block = take(p.family == Family::kda ? 3 * kBlock * dk : 0);
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

  /// Blocks of c on and below the diagonal: c = a b, both [rows, …], for causal products.
  static void product_below(const float* a, int a_row, const float* b, float* c, int rows,
                            int depth) {
    for (int i = 0; i < rows; i += kBlock) {
      const std::int64_t row = static_cast<std::int64_t>(i);
      product<S>({a + row * a_row, a_row, 1}, b, kChunk, c + row * kChunk, kChunk, kBlock,
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

  /// scores and erase of kda, whose decay differs by channel. Between blocks of kBlock tokens the
  /// decay is split at the later block's begin and the earlier one's end, so that every factor
  /// stays below 1.
  static void decay_scores_by_channel(const Params& p, const Scratch& s, int rows) {
    const int width = padded(p.dk);
    // kd: keys times the decay until their block's end; qg, kg: since their block's begin.
    for (int t = 0; t < rows; ++t) {
      const int block = t / kBlock * kBlock;
      const float* begin = s.g + static_cast<std::int64_t>(block - 1) * width;
      const float* end = s.g + static_cast<std::int64_t>(block + kBlock - 1) * width;
      const std::int64_t row = static_cast<std::int64_t>(t) * width;
      for (int c = 0; c < width; c += kWidth) {
        const Vec g = S::load(s.g + row + c);
        const Vec since = exp(block == 0 ? g : S::sub(g, S::load(begin + c)));
        S::store(s.qg + row + c, S::mul(S::load(s.q + row + c), since));
        S::store(s.kg + row + c, S::mul(S::load(s.k + row + c), since));
        S::store(s.kd + row + c, S::mul(S::load(s.k + row + c), exp(S::sub(S::load(end + c), g))));
      }
    }
    for (int i0 = 0; i0 < rows; i0 += kBlock) {
      const float* begin = s.g + static_cast<std::int64_t>(i0 - 1) * width;
      for (int j0 = 0; j0 < i0; j0 += kBlock) {
        const float* end = s.g + static_cast<std::int64_t>(j0 + kBlock - 1) * width;
        for (int c = 0; c < width; c += kWidth) {
          const Vec between = exp(S::sub(S::load(begin + c), S::load(end + c)));
          for (int t = 0; t < kBlock; ++t) {
            const float* key = s.kd + static_cast<std::int64_t>(j0 + t) * width + c;
            S::store(s.block + static_cast<std::int64_t>(t) * width + c,
                     S::mul(S::load(key), between));
          }
        }
        transpose(s.block, kBlock, width, width, s.kt + j0, kChunk);
      }
      const std::int64_t i = static_cast<std::int64_t>(i0);
      if (i0 > 0) {
        product<S>({s.qg + i * width, width, 1}, s.kt, kChunk, s.scores + i * kChunk, kChunk,
                   kBlock, i0, p.dk);
        product<S>({s.kg + i * width, width, 1}, s.kt, kChunk, s.erase + i * kChunk, kChunk, kBlock,
                   i0, p.dk);
      }
      if (decay_over_block(s, i0, width) < kFactorRange) {
        diagonal_by_factors(p, s, i0);
      } else {
        diagonal_by_differences(p, s, i0);
      }
      for (int t = i0; t < i0 + kBlock; ++t) {
        const Vec beta = S::set(s.beta[t]);
        for (int j = 0; j < i0 + kBlock; j += kWidth) {
          float* at = s.erase + static_cast<std::int64_t>(t) * kChunk + j;
          S::store(at, S::mul(S::load(at), beta));
        }
      }
    }
  }

  /// The largest logarithm, over the channels, by which a block's tokens decay.
  static float decay_over_block(const Scratch& s, int i0, int width) {
    const float* first = s.g + static_cast<std::int64_t>(i0) * width;
    const float* last = first + static_cast<std::int64_t>(kBlock - 1) * width;
    Vec most = S::zero();
    for (int c = 0; c < width; c += kWidth)
      most = S::max(most, S::sub(S::load(first + c), S::load(last + c)));
    return S::largest(most);
  }

  /// Inside a block, the decay split at its middle token: factors may exceed 1, but none overflows.
  static void diagonal_by_factors(const Params& p, const Scratch& s, int i0) {
    const int width = padded(p.dk);
    const std::int64_t size = static_cast<std::int64_t>(kBlock) * width;
    const std::int64_t from = static_cast<std::int64_t>(i0) * width;
    const float* middle = s.g + from + kBlock / 2 * static_cast<std::int64_t>(width);
    float* left_q = s.block;
    float* left_k = left_q + size;
    float* right = left_k + size;
    for (int t = 0; t < kBlock; ++t)
      for (int c = 0; c < width; c += kWidth) {
        const std::int64_t at = static_cast<std::int64_t>(t) * width + c;
        const Vec k = S::load(s.k + from + at);
        const Vec decay = S::sub(S::load(s.g + from + at), S::load(middle + c));
        const Vec since = exp(decay);
        S::store(left_q + at, S::mul(S::load(s.q + from + at), since));
        S::store(left_k + at, S::mul(k, since));
        S::store(right + at, S::mul(k, exp(S::sub(S::zero(), decay))));
      }
    transpose(right, kBlock, width, width, s.kt, kChunk);
    const std::int64_t to = static_cast<std::int64_t>(i0) * kChunk + i0;
    product<S>({left_q, width, 1}, s.kt, kChunk, s.scores + to, kChunk, kBlock, kBlock, p.dk);
    product<S>({left_k, width, 1}, s.kt, kChunk, s.erase + to, kChunk, kBlock, kBlock, p.dk);
    for (int i = 0; i < kBlock; ++i)
      for (int j = 0; j < kBlock; j += kWidth) {
        const std::int64_t at = to + static_cast<std::int64_t>(i) * kChunk + j;
        S::store(s.scores + at, keep_below(S::load(s.scores + at), i - j + 1));
        S::store(s.erase + at, keep_below(S::load(s.erase + at), i - j));
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
  static void decay_rows(const Params& p, const Scratch& s, int rows) {
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
    for (int t = 0; t < rows; t += kWidth) {
      S::store(s.since + t, S::set(1.0f));
      S::store(s.until + t, S::set(1.0f));
    }
    const float* end = s.g + static_cast<std::int64_t>(rows - 1) * width;
    for (int c = 0; c < width; c += kWidth) S::store(s.row + c, exp(S::load(end + c)));
    for (int t = 0; t < rows; ++t)
      for (int c = 0; c < width; c += kWidth) {
        const std::int64_t at = static_cast<std::int64_t>(t) * width + c;
        const Vec g = S::load(s.g + at);
        const Vec since = exp(g);
        const Vec k = S::load(s.k + at);
        S::store(s.qg + at, S::mul(S::load(s.q + at), since));
        S::store(s.kg + at, S::mul(k, since));
        S::store(s.kd + at, S::mul(k, exp(S::sub(S::load(end + c), g))));
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
    product<S>({by_channel ? s.qg : s.q, dk, 1}, state, dv, s.so + half, dv, rows, dv, p.dk);
    if (erases) product<S>({by_channel ? s.kg : s.k, dk, 1}, state, dv, s.so, dv, rows, dv, p.dk);
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
        product<S>({s.erase + static_cast<std::int64_t>(i0) * kChunk, kChunk, 1}, s.u, dv, s.so, dv,
                   kBlock, dv, i0);
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
    for (int i0 = 0; i0 < rows; i0 += kBlock)
      product<S>({s.scores + static_cast<std::int64_t>(i0) * kChunk, kChunk, 1}, s.u, dv,
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
    product<S>({by_channel ? s.kd : s.k, 1, dk}, s.u, dv, state, dv, p.dk, dv, rows, {s.row, 1});
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
    transpose(s.k, rows, dk, dk, s.kt, kChunk);
    product_below(s.q, dk, s.kt, s.qk, rows, p.dk);
    if (delta_rule(p)) product_below(s.k, dk, s.kt, s.kk, rows, p.dk);
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
        if (p.family == Family::kda) {
          decay_scores_by_channel(p, s, rows);
        } else {
          decay_scores(p, s, rows);
        }
        decay_rows(p, s, rows);
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
