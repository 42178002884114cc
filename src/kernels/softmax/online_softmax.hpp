// Online softmax of one query row over one tile of keys (layer kernels): the state is
// (o unnormalised, maximum, sum), the weights come out as numbers of the multiplying unit. Where
// the maximum moves, o and weights not yet multiplied have to be scaled by the factor returned.
//
// Inside, logits are in log2 units. The maximum is moved only when it would grow by more than
// kSlack: until then weights may exceed 1 (at most 2^kSlack), which costs no precision in floating
// point and saves nearly every rescaling of o (FlashAttention-4's rule).
#pragma once

#include <cmath>
#include <cstdint>

#include <attune/score_mod.hpp>

#include "kernels/simd/unroll.hpp"

namespace attune::kernels::softmax {

inline constexpr float kSlack = 8.0f;
inline constexpr float kNone = -__builtin_inff();
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.693147181f;

/// How raw products of one row become logits, and which keys of the tile it sees.
struct RowRule {
  float scale = 1.0f;        ///< on raw products, natural units
  float cap = 0.0f;          ///< 0 = off
  float temperature = 1.0f;  ///< after the cap
  float slope = 0.0f;        ///< ALiBi
  float distance = 0.0f;     ///< the row's key position minus the tile's first key
  int from = 0;              ///< keys of the tile that are visible: [from, to)
  int to = 0;
  const std::uint8_t* bits = nullptr;  ///< custom mask of the request, or nullptr
  std::int64_t first_bit = 0;          ///< bit of the tile's first key in this row
  const ScoreMod* mod = nullptr;       ///< on the logits of keys [from, to), or nullptr
  FlexPair pair{};                     ///< the row and the tile's first key, for `mod`
};

template <class Unit>
struct OnlineSoftmax {
  using V = typename Unit::V;
  using F = typename Unit::F;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kStep = kLanes * Unit::kPair;
  /// Weights of this many keys lie together.
  static constexpr int kWeightBlock = 32;

  /// scores: raw products of `num_keys` keys, room for whole steps; overwritten. weights: receives
  /// whole steps, zero beyond the visible keys. sum: kLanes partial sums. Returns the factor that
  /// brings what was summed before to the new maximum, nearly always 1.
  static float update(float* scores, int num_keys, const RowRule& rule, float& maximum, float* sum,
                      typename Unit::Number* weights, std::int64_t weight_stride = kWeightBlock) {
    const int padded = (num_keys + kStep - 1) / kStep * kStep;
    const bool partly = rule.from > 0 || rule.to < padded || rule.bits != nullptr;
    const bool plain = only_scales(rule);
    if (rule.mod != nullptr) modify(scores, rule);

    // After this loop a score times `factor` is a logit in log2 units.
    const float factor = plain ? log2_factor(rule) : 1.0f;
    F best = V::set(kNone);
    if (plain && !partly) {
      for (int i = 0; i < padded; i += kLanes) best = V::max(V::load(scores + i), best);
    } else {
      for (int i = 0; i < padded; i += kLanes) {
        F x = V::load(scores + i);
        if (rule.mod != nullptr)
          x = V::mul(x, V::set(kLog2E));
        else if (!plain)
          x = V::mul(logits(x, rule, i), V::set(kLog2E));
        if (partly) x = hide(x, rule, i);
        V::store(scores + i, x);
        best = V::max(x, best);
      }
    }

    const F times = V::set(factor);
    const float shrink = raise_maximum(V::mul(best, times), maximum, sum);
    const F minus = subtrahend(maximum);
    F total = V::load(sum);
    for (int i = 0; i < padded; i += kStep) {
      F p[Unit::kPair];
      simd::unroll<Unit::kPair>([&](auto h) {
        p[h] = Unit::exp2(V::fma(V::load(scores + i + h * kLanes), times, minus));
        total = V::add(total, p[h]);
      });
      Unit::store(weight_at(weights, weight_stride, i), Unit::round(p));
    }
    V::store(sum, total);
    return shrink;
  }

  /// The same for a whole tile of kKeys keys, all visible, under a rule that only scales (by
  /// `factor` > 0, into log2 units): the scores stay in registers.
  template <int kKeys>
  [[gnu::always_inline]] static float update_whole(const float* scores, float factor,
                                                   float& maximum, float* sum,
                                                   typename Unit::Number* weights,
                                                   std::int64_t weight_stride = kWeightBlock) {
    constexpr int kVectors = kKeys / kLanes;
    F x[kVectors];
    simd::unroll<kVectors>([&](auto i) { x[i] = V::load(scores + i * kLanes); });
    F best = x[0];
    simd::unroll<kVectors>([&](auto i) { best = V::max(x[i], best); });
    const F times = V::set(factor);
    const float shrink = raise_maximum(V::mul(best, times), maximum, sum);
    const F minus = subtrahend(maximum);
    simd::unroll<kVectors>([&](auto i) { x[i] = Unit::exp2(V::fma(x[i], times, minus)); });
    F total = V::load(sum);
    simd::unroll<kVectors / Unit::kPair>([&](auto i) {
      F p[Unit::kPair];
      simd::unroll<Unit::kPair>([&](auto h) {
        p[h] = x[i * Unit::kPair + h];
        total = V::add(total, p[h]);
      });
      Unit::store(weight_at(weights, weight_stride, i * kStep), Unit::round(p));
    });
    V::store(sum, total);
    return shrink;
  }

  /// What follows a factor that is not 1.
  static void scale(float* o, std::int64_t count, float factor) {
    const F times = V::set(factor);
    for (std::int64_t i = 0; i < count; i += kLanes) V::store(o + i, V::mul(V::load(o + i), times));
  }

  template <class Number>
  static Number* weight_at(Number* weights, std::int64_t stride, int key) {
    return weights + key / kWeightBlock * stride + key % kWeightBlock;
  }

  /// Whether a rule only scales; `factor` brings raw products into log2 units then.
  static bool only_scales(const RowRule& rule) {
    return rule.cap == 0.0f && rule.slope == 0.0f && rule.mod == nullptr &&
           rule.temperature * rule.scale > 0.0f;
  }
  static float log2_factor(const RowRule& rule) { return rule.scale * rule.temperature * kLog2E; }

 private:
  /// `best`: the largest logits of the tile, lane by lane. Only a row whose maximum moves needs to
  /// know the largest of them.
  static float raise_maximum(F best, float& maximum, float* sum) {
    const float limit = maximum == kNone ? kNone : maximum + kSlack;
    if (!V::any_greater(best, V::set(limit))) return 1.0f;
    return move_maximum(V::largest(best), maximum, sum);
  }

  [[gnu::noinline]] static float move_maximum(float tile_maximum, float& maximum, float* sum) {
    const float before = maximum;
    maximum = tile_maximum;
    if (before == kNone) return 1.0f;
    const F shrink = V::exp2(V::set(before - tile_maximum));
    V::store(sum, V::mul(V::load(sum), shrink));
    return V::largest(shrink);
  }

  /// With nothing visible yet it is 0: hidden keys weigh 0 and NaN stays NaN.
  static F subtrahend(float maximum) { return V::set(maximum == kNone ? 0.0f : -maximum); }

  /// Raw products of visible keys become logits, and those what the program's function makes of them.
  [[gnu::noinline]] static void modify(float* scores, const RowRule& rule) {
    if (rule.from >= rule.to) return;
    for (int i = rule.from / kLanes * kLanes; i < rule.to; i += kLanes)
      V::store(scores + i, logits(V::load(scores + i), rule, i));
    ScoreRun run{.first = rule.pair, .scores = scores + rule.from, .count = rule.to - rule.from};
    run.first.kv_position += rule.from;
    rule.mod->apply(run, rule.mod->context);
  }

  /// The full form: scale, cap, temperature, bias, in that order.
  static F logits(F x, const RowRule& rule, int first) {
    x = V::mul(x, V::set(rule.scale));
    if (rule.cap > 0.0f) x = V::mul(tanh(V::mul(x, V::set(1.0f / rule.cap))), V::set(rule.cap));
    x = V::mul(x, V::set(rule.temperature));
    if (rule.slope != 0.0f) {
      const F away =
          V::abs(V::sub(V::set(rule.distance - static_cast<float>(first)), V::lane_numbers()));
      x = V::fma(V::set(-rule.slope), away, x);
    }
    return x;
  }

  /// tanh y = sign(y) (1 - e) / (1 + e), e = exp(-2 |y|).
  static F tanh(F y) {
    const F e = V::exp2(V::mul(V::abs(y), V::set(-2.0f * kLog2E)));
    const F one = V::set(1.0f);
    return V::copy_sign(V::div(V::sub(one, e), V::add(one, e)), y);
  }

  static F hide(F x, const RowRule& rule, int first) {
    const F none = V::set(kNone);
    x = V::keep_range(x, rule.from - first, rule.to - first, none);
    if (rule.bits != nullptr) {
      const int count = rule.to - first < kLanes ? rule.to - first : kLanes;
      x = V::keep_bits(x, mask_bits(rule, first, count), none);
    }
    return x;
  }

  /// Bits of `count` keys from the tile's key `first`; reads no byte beyond theirs.
  static std::uint32_t mask_bits(const RowRule& rule, int first, int count) {
    std::uint32_t bits = 0;
    for (int i = 0; i < count; ++i) {
      const std::int64_t at = rule.first_bit + first + i;
      bits |= ((rule.bits[at >> 3] >> (at & 7)) & 1u) << i;
    }
    return bits;
  }
};

}  // namespace attune::kernels::softmax
