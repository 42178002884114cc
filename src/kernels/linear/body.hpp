// Linear attention over one request's rows for a few heads: the chunked (parallel) form for
// prompts, the recurrent one for a few tokens (layer kernels). Template on the SIMD type; the
// mathematics is in docs/kernels/linear.md.
//
// One item works alone: it convolves, normalises and gates what it needs chunk by chunk into a
// thread's scratch memory, keeps the head's state transposed there, and touches main memory once
// for inputs, once for o and twice for the state.
#pragma once

#include <cstdint>

#include <attune/tensor.hpp>

#include "kernels/linear/gemm.hpp"
#include "kernels/linear/params.hpp"
#include "kernels/linear/policy.hpp"

namespace attune::kernels::linear {

/// A thread's scratch memory, laid out for one Params. Rows are padded to kPadding floats.
struct Scratch {
  float* q;        ///< [kChunk, dk]
  float* k;        ///< [kChunk, dk]
  float* qg;       ///< [kChunk, dk] q times its decay since the chunk began
  float* kg;       ///< [kChunk, dk]
  float* kt;       ///< [dk, kChunk]
  float* kd;       ///< [dk, kChunk] kt times the decay until the chunk's end
  float* v;        ///< [kChunk, dv]
  float* u;        ///< [kChunk, dv] what is written to the state
  float* o;        ///< [kChunk, dv]
  float* qk;       ///< [kChunk, kChunk]
  float* kk;       ///< [kChunk, kChunk]
  float* scores;   ///< [kChunk, kChunk] qk, decayed and masked
  float* erase;    ///< [kChunk, kChunk] kk, decayed, masked, times beta
  float* g;        ///< [kChunk] or [kChunk, dk]: log decay summed from the chunk's begin
  float* beta;     ///< [kChunk]
  float* state;    ///< [dk, dv]
  float* taps;     ///< [kMaxTaps + 1, max(dk, dv)] weights by tap, then bias
  float* history;  ///< [kMaxTaps, max(dk, dv)] inputs before the request's first row
  float* row;      ///< [max(dk, dv, heads)] temporary
};

template <class S>
struct Body {
  using Vec = typename S::F;
  static constexpr int kWidth = S::kLanes;

  static int padded(int n) { return (n + kPadding - 1) / kPadding * kPadding; }
  static bool delta_rule(const Params& p) {
    return p.family == Family::gdn || p.family == Family::kda;
  }

  /// Lays the parts out one after the other; with a null base it only counts.
  static std::int64_t lay_out(const Params& p, float* base, Scratch* out) {
    const std::int64_t dk = padded(p.dk);
    const std::int64_t dv = padded(p.dv);
    const std::int64_t widest = dk > dv ? dk : dv;
    std::int64_t used = 0;
    const auto take = [&](std::int64_t floats) {
      float* at = base == nullptr ? nullptr : base + used;
      used += floats;
      return at;
    };
    Scratch s;
    s.q = take(kChunk * dk);
    s.k = take(kChunk * dk);
    s.qg = take(kChunk * dk);
    s.kg = take(kChunk * dk);
    s.kt = take(dk * kChunk);
    s.kd = take(dk * kChunk);
    s.v = take(kChunk * dv);
    s.u = take(kChunk * dv);
    s.o = take(kChunk * dv);
    s.qk = take(kChunk * kChunk);
    s.kk = take(kChunk * kChunk);
    s.scores = take(kChunk * kChunk);
    s.erase = take(kChunk * kChunk);
    s.g = take(kChunk * (p.family == Family::kda ? dk : 1));
    s.beta = take(kChunk);
    s.state = take(dk * dv);
    s.taps = take((kMaxTaps + 1) * widest);
    s.history = take(kMaxTaps * widest);
    s.row = take(widest + kPadding);
    if (out != nullptr) *out = s;
    return used;
  }

  static std::int64_t scratch_floats(const Params& p) { return lay_out(p, nullptr, nullptr); }

  static Vec load_activations(const void* data, bool bf16, std::int64_t at, int n) {
    return bf16
               ? S::template load_as_n<DType::bf16>(static_cast<const std::uint16_t*>(data) + at, n)
               : S::load_n(static_cast<const float*>(data) + at, n);
  }

  static void store_activations(void* data, bool bf16, std::int64_t at, Vec value, int n) {
    if (bf16) {
      S::template store_as_n<DType::bf16>(static_cast<std::uint16_t*>(data) + at, value, n);
    } else {
      S::store_n(static_cast<float*>(data) + at, value, n);
    }
  }

  static Vec exp(Vec x) { return S::exp2(S::mul(x, S::set(1.44269504f))); }
  static Vec min(Vec a, Vec b) {
    return S::sub(S::zero(), S::max(S::sub(S::zero(), a), S::sub(S::zero(), b)));
  }
  static float lane0(Vec x) {
    float value = 0.0f;
    S::store_n(&value, x, 1);
    return value;
  }
  /// Lanes below n keep x, the others become zero; n may be negative.
  static Vec keep_below(Vec x, int n) { return S::keep_range(x, 0, n, S::zero()); }

  static float load_one(const void* data, bool bf16, std::int64_t at) {
    return lane0(load_activations(data, bf16, at, 1));
  }

  static Vec sigmoid(Vec x) {
    return S::div(S::set(1.0f), S::add(S::set(1.0f), exp(S::sub(S::zero(), x))));
  }

  /// ln(1 + e^x) as max(x, 0) + 2 atanh(t / (2 + t)), t = e^-|x|; the series to z^15 errs by less
  /// than 1e-8.
  static Vec softplus(Vec x) {
    const Vec positive = S::max(x, S::zero());
    const Vec t = exp(S::sub(min(x, S::zero()), positive));
    const Vec z = S::div(t, S::add(t, S::set(2.0f)));
    const Vec z2 = S::mul(z, z);
    Vec sum = S::set(2.0f / 15.0f);
    for (int odd = 13; odd >= 1; odd -= 2)
      sum = S::fma(sum, z2, S::set(2.0f / static_cast<float>(odd)));
    return S::fma(sum, z, positive);
  }

  // ---- q, k, v of one chunk
  // ------------------------------------------------------------------------------------------

  /// Rows [first, first + count) of `channels` channels from `channel` on, convolved, into
  /// out[count, padded(channels)]; rows beyond count up to `rows` become zero.
  static void prepare_rows(const Params& p, const Item& item, const Activations& plain, int channel,
                           int column, int channels, std::int64_t first, int count, int rows,
                           const Scratch& s, float* out) {
    const int width = padded(channels);
    if (p.conv_kernel > 0) gather_taps(p, item, channel, channels, width, s);
    for (int c = 0; c < width; c += kWidth) {
      const int n = channels - c < kWidth ? (channels > c ? channels - c : 0) : kWidth;
      for (int t = 0; t < count; ++t) {
        const std::int64_t token = item.first_token + first + t;
        Vec y;
        if (p.conv_kernel == 0) {
          y = n > 0 ? load_activations(plain.data, p.bf16, token * plain.row + column + c, n)
                    : S::zero();
        } else {
          y = convolved(p, item, channel + c, c, first + t, width, n, s);
        }
        S::store(out + static_cast<std::int64_t>(t) * width + c, y);
      }
      for (int t = count; t < rows; ++t)
        S::store(out + static_cast<std::int64_t>(t) * width + c, S::zero());
    }
  }

  static void gather_taps(const Params& p, const Item& item, int channel, int channels, int width,
                          const Scratch& s) {
    const int history = p.conv_kernel - 1;
    for (int c = 0; c < width; ++c) {
      const bool inside = c < channels;
      const std::int64_t ch = channel + c;
      for (int r = 0; r < p.conv_kernel; ++r)
        s.taps[r * width + c] = inside ? p.conv_weight[ch * p.conv_kernel + r] : 0.0f;
      s.taps[p.conv_kernel * width + c] = inside && p.conv_bias != nullptr ? p.conv_bias[ch] : 0.0f;
      for (int r = 0; r < history; ++r)
        s.history[r * width + c] =
            inside
                ? load_one(p.conv_state, p.bf16, item.slot * p.conv_state_slot + ch * history + r)
                : 0.0f;
    }
  }

  static Vec convolved(const Params& p, const Item& item, int channel, int c, std::int64_t t,
                       int width, int n, const Scratch& s) {
    const int history = p.conv_kernel - 1;
    Vec sum = S::load(s.taps + p.conv_kernel * width + c);
    if (n == 0) return sum;
    for (int r = 0; r < p.conv_kernel; ++r) {
      const std::int64_t at = t - history + r;
      const Vec x = at >= 0
                        ? load_activations(p.conv_input.data, p.bf16,
                                           (item.first_token + at) * p.conv_input.row + channel, n)
                        : S::load(s.history + (history + at) * width + c);
      sum = S::fma(S::load(s.taps + r * width + c), x, sum);
    }
    return p.conv_silu ? S::mul(sum, sigmoid(sum)) : sum;
  }

  static void normalise_rows(float* x, int count, int width, float scale) {
    for (int t = 0; t < count; ++t) {
      float* row = x + static_cast<std::int64_t>(t) * width;
      Vec sum = S::zero();
      for (int c = 0; c < width; c += kWidth) sum = S::fma(S::load(row + c), S::load(row + c), sum);
      const Vec factor = S::set(scale / __builtin_sqrtf(S::sum(sum) + 1e-6f));
      for (int c = 0; c < width; c += kWidth) S::store(row + c, S::mul(S::load(row + c), factor));
    }
  }

  // ---- gates
  // ---------------------------------------------------------------------------------------------------------

  /// Per-token log decay (not yet summed) and beta of head h into g and beta; rows beyond count
  /// write nothing (g 0, beta 0).
  static void prepare_gates(const Params& p, const Item& item, int h, std::int64_t first, int count,
                            int rows, const Scratch& s) {
    for (int t = 0; t < rows; ++t) {
      const std::int64_t token = item.first_token + first + t;
      const bool inside = t < count;
      if (p.family == Family::lightning) {
        s.beta[t] = inside ? 1.0f : 0.0f;
        s.g[t] = inside ? -p.slopes[h] : 0.0f;
        continue;
      }
      if (!inside) {
        s.beta[t] = 0.0f;
        if (p.family == Family::kda) {
          for (int c = 0; c < padded(p.dk); c += kWidth)
            S::store(s.g + static_cast<std::int64_t>(t) * padded(p.dk) + c, S::zero());
        } else {
          s.g[t] = 0.0f;
        }
        continue;
      }
      const float a = lane0(exp(S::set(p.a_log[h])));
      if (p.family == Family::kda) {
        kda_gate(p, h, token, a, s.g + static_cast<std::int64_t>(t) * padded(p.dk));
      } else {
        const float raw = load_one(p.gate.data, p.bf16, token * p.gate.row + h) + p.dt_bias[h];
        const float step = raw > 20.0f ? raw : lane0(softplus(S::set(raw)));
        if (p.family == Family::mamba2) {
          const float low = step < p.dt_min ? p.dt_min : step;
          const float dt = low > p.dt_max ? p.dt_max : low;
          s.beta[t] = dt;
          s.g[t] = -a * dt;
          continue;
        }
        s.g[t] = -a * step;
      }
      const float b = load_one(p.beta.data, p.bf16, token * p.beta.row + h);
      s.beta[t] = p.beta_scale * lane0(sigmoid(S::set(b)));
    }
  }

  static void kda_gate(const Params& p, int h, std::int64_t token, float a, float* g) {
    for (int c = 0; c < padded(p.dk); c += kWidth) {
      const int n = p.dk - c < kWidth ? (p.dk > c ? p.dk - c : 0) : kWidth;
      if (n == 0) {
        S::store(g + c, S::zero());
        continue;
      }
      const std::int64_t at = static_cast<std::int64_t>(h) * p.dk + c;
      const Vec raw = S::add(load_activations(p.gate.data, p.bf16, token * p.gate.row + at, n),
                             S::load_n(p.dt_bias + at, n));
      const Vec decay = p.gate_lower_bound < 0.0f
                            ? S::mul(S::set(p.gate_lower_bound), sigmoid(S::mul(S::set(a), raw)))
                            : S::mul(S::set(-a), softplus(raw));
      S::store_n(g + c, decay, n);
      for (int rest = n; rest < kWidth; ++rest) g[c + rest] = 0.0f;
    }
  }

  // ---- the chunked form
  // ----------------------------------------------------------------------------------------------

  static void transpose(const float* in, int rows, int columns, int in_row, float* out,
                        int out_row) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j)
        out[static_cast<std::int64_t>(j) * out_row + i] =
            in[static_cast<std::int64_t>(i) * in_row + j];
  }

  /// scores and erase of a family whose decay is one number a token.
  static void decay_scores(const Params& p, const Scratch& s, int rows) {
    for (int i = 0; i < rows; ++i) {
      const Vec gi = S::set(s.g[i]);
      const Vec bi = S::set(s.beta[i]);
      for (int j = 0; j < rows; j += kWidth) {
        const std::int64_t at = static_cast<std::int64_t>(i) * kChunk + j;
        // Above the diagonal the exponent would be positive: min() keeps it finite, mask() removes
        // it.
        const Vec decay = exp(min(S::sub(gi, S::load(s.g + j)), S::zero()));
        S::store(s.scores + at, keep_below(S::mul(S::load(s.qk + at), decay), i - j + 1));
        if (delta_rule(p))
          S::store(s.erase + at, keep_below(S::mul(S::mul(S::load(s.kk + at), decay), bi), i - j));
      }
    }
  }

  /// scores and erase of kda, whose decay differs by channel. Pairs of blocks of kBlock tokens:
  /// with the decay counted to the earlier block's end both factors stay below 1; inside a block
  /// the difference of exponents is taken channel by channel.
  static void decay_scores_by_channel(const Params& p, const Scratch& s, int rows) {
    const int width = padded(p.dk);
    for (int i0 = 0; i0 < rows; i0 += kBlock) {
      for (int j0 = 0; j0 < i0; j0 += kBlock) {
        const float* end = s.g + static_cast<std::int64_t>(j0 + kBlock - 1) * width;
        // Left factors of this pair, in qg and kg rows of block i0; right ones, transposed, in kd's
        // columns of block j0.
        for (int t = 0; t < kBlock; ++t) {
          const std::int64_t i = static_cast<std::int64_t>(i0 + t) * width;
          const std::int64_t j = static_cast<std::int64_t>(j0 + t) * width;
          for (int c = 0; c < width; c += kWidth) {
            const Vec left = exp(S::sub(S::load(s.g + i + c), S::load(end + c)));
            S::store(s.qg + i + c, S::mul(S::load(s.q + i + c), left));
            S::store(s.kg + i + c, S::mul(S::load(s.k + i + c), left));
            const Vec right = exp(S::sub(S::load(end + c), S::load(s.g + j + c)));
            S::store(s.row + c, S::mul(S::load(s.k + j + c), right));
          }
          for (int c = 0; c < width; ++c)
            s.kd[static_cast<std::int64_t>(c) * kChunk + j0 + t] = s.row[c];
        }
        const std::int64_t at = static_cast<std::int64_t>(i0) * kChunk + j0;
        const std::int64_t i = static_cast<std::int64_t>(i0) * width;
        product<S>({s.qg + i, width, 1}, s.kd + j0, kChunk, s.scores + at, kChunk, kBlock, kBlock,
                   p.dk, false);
        product<S>({s.kg + i, width, 1}, s.kd + j0, kChunk, s.erase + at, kChunk, kBlock, kBlock,
                   p.dk, false);
      }
      for (int i = i0; i < i0 + kBlock; ++i) {
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
        const Vec beta = S::set(s.beta[i]);
        for (int j = 0; j < i0 + kBlock; j += kWidth) {
          float* at = s.erase + static_cast<std::int64_t>(i) * kChunk + j;
          S::store(at, S::mul(S::load(at), beta));
        }
      }
    }
  }

  /// qg, kg: q and k times their decay since the chunk's begin. kd: keys times the decay until its
  /// end, transposed.
  static void decay_rows(const Params& p, const Scratch& s, int rows) {
    const int width = padded(p.dk);
    const bool by_channel = p.family == Family::kda;
    for (int t = 0; t < rows; ++t) {
      const std::int64_t at = static_cast<std::int64_t>(t) * width;
      const Vec one = exp(S::set(by_channel ? 0.0f : s.g[t]));
      for (int c = 0; c < width; c += kWidth) {
        const Vec since = by_channel ? exp(S::load(s.g + at + c)) : one;
        S::store(s.qg + at + c, S::mul(S::load(s.q + at + c), since));
        if (delta_rule(p)) S::store(s.kg + at + c, S::mul(S::load(s.k + at + c), since));
      }
    }
    if (by_channel) {
      const float* end = s.g + static_cast<std::int64_t>(rows - 1) * width;
      for (int t = 0; t < rows; ++t) {
        const std::int64_t at = static_cast<std::int64_t>(t) * width;
        for (int c = 0; c < width; c += kWidth)
          S::store(s.row + c, S::mul(S::load(s.k + at + c),
                                     exp(S::sub(S::load(end + c), S::load(s.g + at + c)))));
        for (int c = 0; c < width; ++c) s.kd[static_cast<std::int64_t>(c) * kChunk + t] = s.row[c];
      }
      return;
    }
    const Vec end = S::set(s.g[rows - 1]);
    for (int t = 0; t < rows; t += kWidth) {
      const Vec until = exp(S::sub(end, S::load(s.g + t)));
      for (int c = 0; c < p.dk; ++c) {
        const std::int64_t at = static_cast<std::int64_t>(c) * kChunk + t;
        S::store(s.kd + at, S::mul(S::load(s.kt + at), until));
      }
    }
  }

  /// u = (I + erase)^-1 (beta (v - kg S)) with the delta rule, beta v without.
  static void solve(const Params& p, const Scratch& s, int rows) {
    const int dk = padded(p.dk);
    const int dv = padded(p.dv);
    const bool erases = delta_rule(p);
    if (erases) product<S>({s.kg, dk, 1}, s.state, dv, s.u, dv, rows, dv, p.dk, false);
    for (int t = 0; t < rows; ++t) {
      const Vec beta = S::set(s.beta[t]);
      for (int d = 0; d < dv; d += kWidth) {
        const std::int64_t at = static_cast<std::int64_t>(t) * dv + d;
        const Vec v = S::load(s.v + at);
        S::store(s.u + at, S::mul(beta, erases ? S::sub(v, S::load(s.u + at)) : v));
      }
    }
    if (!erases) return;
    for (int i0 = 0; i0 < rows; i0 += kBlock) {
      if (i0 > 0) {
        product<S>({s.erase + static_cast<std::int64_t>(i0) * kChunk, kChunk, 1}, s.u, dv, s.o, dv,
                   kBlock, dv, i0, false);
        for (int at = 0; at < kBlock * dv; at += kWidth) {
          float* u = s.u + static_cast<std::int64_t>(i0) * dv + at;
          S::store(u, S::sub(S::load(u), S::load(s.o + at)));
        }
      }
      for (int d = 0; d < dv; d += kWidth) {
        for (int i = i0 + 1; i < i0 + kBlock; ++i) {
          Vec left = S::load(s.u + static_cast<std::int64_t>(i) * dv + d);
          for (int j = i0; j < i; ++j)
            left = S::fma(S::set(-s.erase[static_cast<std::int64_t>(i) * kChunk + j]),
                          S::load(s.u + static_cast<std::int64_t>(j) * dv + d), left);
          S::store(s.u + static_cast<std::int64_t>(i) * dv + d, left);
        }
      }
    }
  }

  static void output(const Params& p, const Item& item, int h, std::int64_t first, int count,
                     int rows, const Scratch& s) {
    const int dk = padded(p.dk);
    const int dv = padded(p.dv);
    product<S>({s.qg, dk, 1}, s.state, dv, s.o, dv, rows, dv, p.dk, false);
    for (int i0 = 0; i0 < rows; i0 += kBlock)
      product<S>({s.scores + static_cast<std::int64_t>(i0) * kChunk, kChunk, 1}, s.u, dv,
                 s.o + static_cast<std::int64_t>(i0) * dv, dv, kBlock, dv, i0 + kBlock, true);
    const Vec skip = S::set(p.d_skip != nullptr ? p.d_skip[h] : 0.0f);
    for (int t = 0; t < count; ++t) {
      const std::int64_t row =
          (item.first_token + first + t) * p.o_row + static_cast<std::int64_t>(h) * p.dv;
      for (int d = 0; d < p.dv; d += kWidth) {
        const int n = p.dv - d < kWidth ? p.dv - d : kWidth;
        const std::int64_t at = static_cast<std::int64_t>(t) * dv + d;
        store_activations(p.o, p.bf16, row + d, S::fma(skip, S::load(s.v + at), S::load(s.o + at)),
                          n);
      }
    }
  }

  static void advance(const Params& p, const Scratch& s, int rows) {
    const int dk = padded(p.dk);
    const int dv = padded(p.dv);
    const bool by_channel = p.family == Family::kda;
    const float* end = s.g + static_cast<std::int64_t>(rows - 1) * (by_channel ? dk : 1);
    for (int c = 0; c < p.dk; ++c) {
      const Vec decay = exp(S::set(by_channel ? end[c] : end[0]));
      float* row = s.state + static_cast<std::int64_t>(c) * dv;
      for (int d = 0; d < dv; d += kWidth) S::store(row + d, S::mul(S::load(row + d), decay));
    }
    product<S>({s.kd, kChunk, 1}, s.u, dv, s.state, dv, p.dk, dv, rows, true);
  }

  static void sum_gates(const Params& p, const Scratch& s, int rows) {
    if (p.family != Family::kda) {
      for (int t = 1; t < rows; ++t) s.g[t] += s.g[t - 1];
      return;
    }
    const int width = padded(p.dk);
    for (int t = 1; t < rows; ++t) {
      for (int c = 0; c < width; c += kWidth) {
        float* at = s.g + static_cast<std::int64_t>(t) * width + c;
        S::store(at, S::add(S::load(at), S::load(at - width)));
      }
    }
  }

  static void chunked(const Params& p, const Item& item, const Scratch& s) {
    const int dk = padded(p.dk);
    const int dv = padded(p.dv);
    const int ratio = p.num_v_heads / p.num_k_heads;
    for (int h = item.first_head; h < item.first_head + item.num_heads; ++h) {
      float* state =
          p.state + item.slot * p.state_slot + static_cast<std::int64_t>(h) * p.dv * p.dk;
      for (std::int64_t at = 0; at < static_cast<std::int64_t>(dk) * dv; ++at) s.state[at] = 0.0f;
      transpose(state, p.dv, p.dk, p.dk, s.state, dv);
      for (std::int64_t first = 0; first < item.num_tokens; first += kChunk) {
        const std::int64_t left = item.num_tokens - first;
        const int count = left < kChunk ? static_cast<int>(left) : kChunk;
        const int rows = (count + kBlock - 1) / kBlock * kBlock;
        prepare_keys(p, item, h / ratio, first, count, rows, s);
        prepare_rows(p, item, p.v, p.v_channel + h * p.dv, h * p.dv, p.dv, first, count, rows, s,
                     s.v);
        prepare_gates(p, item, h, first, count, rows, s);
        sum_gates(p, s, rows);
        if (p.family == Family::kda) {
          decay_scores_by_channel(p, s, rows);
        } else {
          decay_scores(p, s, rows);
        }
        decay_rows(p, s, rows);
        solve(p, s, rows);
        output(p, item, h, first, count, rows, s);
        advance(p, s, rows);
      }
      transpose(s.state, p.dk, p.dv, dv, state, p.dk);
    }
  }

  static void prepare_keys(const Params& p, const Item& item, int kh, std::int64_t first, int count,
                           int rows, const Scratch& s) {
    const int dk = padded(p.dk);
    const int at = kh * p.dk;
    prepare_rows(p, item, p.q, p.q_channel + at, at, p.dk, first, count, rows, s, s.q);
    prepare_rows(p, item, p.k, p.k_channel + at, at, p.dk, first, count, rows, s, s.k);
    if (delta_rule(p)) {
      normalise_rows(s.q, count, dk, 1.0f / __builtin_sqrtf(static_cast<float>(p.dk)));
      normalise_rows(s.k, count, dk, 1.0f);
    }
    if (p.family == Family::kda) return;
    transpose(s.k, rows, dk, dk, s.kt, kChunk);
    product<S>({s.q, dk, 1}, s.kt, kChunk, s.qk, kChunk, rows, rows, p.dk, false);
    if (delta_rule(p))
      product<S>({s.k, dk, 1}, s.kt, kChunk, s.kk, kChunk, rows, rows, p.dk, false);
  }

  // ---- the recurrent form
  // --------------------------------------------------------------------------------------------

  /// One token after the other, straight on the state rows in memory: what decode is bound by is
  /// reading and writing them once.
  static void recurrent(const Params& p, const Item& item, const Scratch& s) {
    const int dk = padded(p.dk);
    const int ratio = p.num_v_heads / p.num_k_heads;
    for (int h = item.first_head; h < item.first_head + item.num_heads; ++h) {
      float* state =
          p.state + item.slot * p.state_slot + static_cast<std::int64_t>(h) * p.dv * p.dk;
      const int kh = h / ratio;
      for (std::int64_t t = 0; t < item.num_tokens; ++t) {
        prepare_rows(p, item, p.q, p.q_channel + kh * p.dk, kh * p.dk, p.dk, t, 1, 1, s, s.q);
        prepare_rows(p, item, p.k, p.k_channel + kh * p.dk, kh * p.dk, p.dk, t, 1, 1, s, s.k);
        prepare_rows(p, item, p.v, p.v_channel + h * p.dv, h * p.dv, p.dv, t, 1, 1, s, s.v);
        if (delta_rule(p)) {
          normalise_rows(s.q, 1, dk, 1.0f / __builtin_sqrtf(static_cast<float>(p.dk)));
          normalise_rows(s.k, 1, dk, 1.0f);
        }
        prepare_gates(p, item, h, t, 1, 1, s);
        step(p, h, item.first_token + t, state, s);
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
    for (int d = 0; d < p.dv; ++d) {
      float* row = state + static_cast<std::int64_t>(d) * p.dk;
      Vec sk = S::zero();
      Vec sq = S::zero();
      for (int c = 0; c < p.dk; c += kWidth) {
        const Vec old = S::load_n(row + c, p.dk - c < kWidth ? p.dk - c : kWidth);
        if (erases) sk = S::fma(old, S::load(s.kg + c), sk);
        sq = S::fma(old, S::load(s.qg + c), sq);
      }
      const float u = beta * (erases ? s.v[d] - S::sum(sk) : s.v[d]);
      const Vec write = S::set(u);
      for (int c = 0; c < p.dk; c += kWidth) {
        const int n = p.dk - c < kWidth ? p.dk - c : kWidth;
        const Vec decayed = S::mul(S::load_n(row + c, n), S::load(s.row + c));
        S::store_n(row + c, S::fma(write, S::load(s.k + c), decayed), n);
      }
      s.o[d] = S::sum(sq) + u * kq + skip * s.v[d];
    }
    for (int d = 0; d < p.dv; d += kWidth) {
      const int n = p.dv - d < kWidth ? p.dv - d : kWidth;
      store_activations(p.o, p.bf16, out + d, S::load_n(s.o + d, n), n);
    }
  }

  static void run(const Params& p, const Item& item, float* scratch) {
    if (item.slot < 0 || item.num_tokens == 0) return;
    Scratch s;
    lay_out(p, scratch, &s);
    if (item.num_tokens < kRecurrentBelow) {
      recurrent(p, item, s);
    } else {
      chunked(p, item, s);
    }
  }
};

}  // namespace attune::kernels::linear
