// Prefill: a block of query rows of one KV head against a range of keys (layer kernels).
//
// For each tile of keys, K and V are packed once for the multiplying unit and stay in the innermost
// cache while strips of rows pass over them: scores = Q · K, online softmax, o += P · V. Both
// products are the same register tile: rows of numbers, broadcast, against packed columns.
//
//   packed K  [head_dim_qk / kPair][kKeyTile][kPair]     columns are keys
//   packed V  [kKeyTile / kPair][o_stride][kPair]        columns are dims of the output
//
// Rows of a block are ordered by token, then head, so that a strip's visible keys are nearly the
// same for all of its rows and whole tiles are skipped by comparing integers.
#pragma once

#include <cstdint>

#include "base/math.hpp"
#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/ragged_prefill/block.hpp"
#include "kernels/ragged_prefill/policy.hpp"
#include "kernels/simd/unroll.hpp"
#include "kernels/softmax/online_softmax.hpp"

namespace attune::kernels::ragged_prefill {

template <class Unit, DType T>
struct Body {
  using V = typename Unit::V;
  using F = typename Unit::F;
  using Number = typename Unit::Number;
  using Operand = typename Unit::Operand;
  using Io = dense::RowIo<Unit, T>;
  using Softmax = softmax::OnlineSoftmax<Unit>;
  using Block = BlockOf<Unit, T>;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPair = Unit::kPair;
  static constexpr int kStripRows = Unit::kStripRows;
  /// Keys are multiplied in steps of this many.
  static constexpr int kKeyStep = kLanes * kPair;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;
  static constexpr std::int64_t kLine = 64;
  static constexpr std::int64_t kFewRows = 64;
  /// Bytes of a key of which kTile fill the first cache.
  static constexpr std::int64_t kWideKey = 768;
  /// Rows that leave room for their turned copies among the queries; with sixteen registers the
  /// packed form catches up sooner.
  static constexpr std::int64_t kMostLaneRows = kLanes == 16 ? 192 : 32;
  static_assert(2 * kMostLaneRows <= kMaxRows);
  /// Stored keys are numbers of the unit: rows as lanes can meet them where they lie.
  static constexpr bool kInPlace = kLanes > 1 &&
                                   kBytes == static_cast<std::int64_t>(sizeof(Number)) &&
                                   (T == DType::bf16 || T == DType::f32);
  static constexpr int kMostRows = kInPlace && kLanes > kStripRows ? kLanes : kStripRows;

  static constexpr int kPackedKeys = kTile;

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    const Block block = Block::begin(p, item, scratch);
    block.load_queries(p, item);
    block.clear(p);
    const bool lanes = rows_as_lanes(p, block);
    Number* const lane_queries =
        block.q + base::round_up<std::int64_t>(block.rows, kLanes) * p.scratch.q_stride;
    if (lanes) turn_queries(p, block, lane_queries);

    dense::TileRows rows[2];
    std::int64_t tile = Io::seen_from(p, item, item.kv_begin / kTile * kTile);
    std::int64_t following = tile;
    char* const base = static_cast<char*>(scratch);
    if (tile < item.kv_end) Io::find(p, item, tile, base, 0, rows[0]);
    for (int now = 0; tile < item.kv_end; tile = following, now ^= 1) {
      following = Io::seen_from(p, item, tile + kTile);
      dense::TileRows& next = rows[now ^ 1];
      if (following < item.kv_end)
        Io::find(p, item, following, base, now ^ 1, next);
      else
        next.from = next.to = 0;
      // With few strips to spread them over, requests for the next tile would come in bursts, of
      // which much is dropped: who reads the keys first asks.
      const bool in_place = lanes && tile >= item.shared.begin && tile + kTile <= item.shared.end &&
                            evenly_spaced(rows[now]);
      if (!in_place) {
        pack_keys(p, rows[now], block.rows < kFewRows ? &next : nullptr, block.k);
        pack_values(p, rows[now], block.v);
      }
      pass_over(p, item, block, tile, rows[now], next, in_place ? lane_queries : nullptr);
    }
    block.finish(p, item);
  }

 private:
  /// What passes between the three steps of one strip and one tile.
  struct Strip {
    alignas(64) float scores[kMostRows * kTile];
    alignas(64) Number weights[kMostRows * kTile];
    softmax::RowRule rules[kMostRows];
    int count;
    int needed;   ///< no row sees a key of the tile at or beyond this
    bool hidden;  ///< some key below `needed`, or in its pair, is hidden from some row
  };

  /// Whether rows meet keys as they lie: where too few rows multiply a tile to pay for packing it,
  /// and where it would not stay in the first cache, which makes the packed form no faster.
  static bool rows_as_lanes(const dense::Params& p, const Block& block) {
    if (!kInPlace || p.head_dim_qk % kPair != 0 || p.head_dim_vo % Unit::kNumbers != 0 ||
        p.custom_mask != nullptr || p.block_mask.given())
      return false;
    const std::int64_t padded = base::round_up<std::int64_t>(block.rows, kLanes);
    return block.rows <= kLanes || (p.head_dim_qk * kBytes >= kWideKey && padded <= kMostLaneRows &&
                                    block.rows * 4 >= padded * 3);
  }

  /// All strips over one packed tile, the next tile being fetched meanwhile. With `lane_queries`
  /// strips of kLanes rows over a tile that is not packed and that all rows see whole.
  static void pass_over(const dense::Params& p, const dense::Item& item, const Block& block,
                        std::int64_t tile, const dense::TileRows& keys, const dense::TileRows& next,
                        const Number* lane_queries) {
    const std::int64_t q_stride = p.scratch.q_stride;
    const std::int64_t o_stride = p.scratch.o_stride;
    const int fetch_step = static_cast<int>((next.to * kStripRows + block.rows - 1) / block.rows);
    int fetched = next.from;
    enum class Values { unchecked, finite, not_finite } values = Values::unchecked;
    Strip s;
    const softmax::RowRule common = Io::common_rule(p, item, item.kv_head);
    for (softmax::RowRule& rule : s.rules) rule = common;
    const bool simple = Block::only_scales(p, common);
    const bool all_whole = simple && tile >= item.shared.begin && tile + kTile <= item.shared.end;
    const float factor = Softmax::log2_factor(common);
    std::int64_t token = 0;
    std::int64_t head = 0;
    for (std::int64_t row = 0; row < block.rows; row += s.count) {
      const std::int64_t left = block.rows - row;
      // Never a strip of one or two rows at the end: 7 = 4 + 3, 8 = 4 + 4.
      s.count = static_cast<int>(lane_queries != nullptr ? (left < kLanes ? left : kLanes)
                                 : left >= kStripRows    ? (left == 7 || left == 8 ? 4 : kStripRows)
                                                         : left);
      for (int stop = fetched + fetch_step;
           lane_queries == nullptr && fetched < stop && fetched < next.to; ++fetched) {
        Io::prefetch_far(next.k[fetched], p.head_dim_qk * kBytes);
        Io::prefetch_far(next.v[fetched], p.head_dim_vo * kBytes);
      }
      bool whole = all_whole;
      if (whole) {
        s.needed = kTile;
        s.hidden = false;
      } else {
        survey(p, item, tile, keys, token, head, s);
        if (s.needed == 0) continue;
        whole = simple && s.needed == kTile && !s.hidden && keys.from == 0;
      }

      float* const o = block.o + row * o_stride;
      const int span = (s.needed + kKeyStep - 1) / kKeyStep * kKeyStep;
      if (lane_queries == nullptr)
        multiply_rows(s.count, block.q + row * q_stride, q_stride, block.k, kTile * kPair,
                      (p.head_dim_qk + kPair - 1) / kPair, span / kLanes, s.scores, kTile, false);
      else if constexpr (kInPlace) {
        const Number* const q = lane_queries + row * q_stride;
        if (row == 0 && evenly_spaced(next))
          score_lanes<true>(p, keys, next, q, s.scores);
        else
          score_lanes<false>(p, keys, keys, q, s.scores);
      }
      for (int r = 0; r < s.count; ++r) {
        float* const scores = s.scores + r * kTile;
        Number* const weights = s.weights + r * kTile;
        float& maximum = block.maximum[row + r];
        float* const sum = block.sum + (row + r) * kLanes;
        const float shrink =
            whole ? Softmax::template update_whole<kTile>(scores, factor, maximum, sum, weights)
                  : Softmax::update(scores, span, s.rules[r], maximum, sum, weights);
        if (shrink != 1.0f) Softmax::scale(o + r * o_stride, o_stride, shrink);
      }
      if constexpr (kInPlace) {
        if (lane_queries != nullptr) {
          add_values_in_place(p, keys, s, o);
          continue;
        }
      }
      // A hidden key weighs 0, but 0 times a value that is not finite is NaN.
      if (s.hidden && values == Values::unchecked)
        values = Block::all_finite(block.v, kTile * o_stride) ? Values::finite : Values::not_finite;
      if (s.hidden && values == Values::not_finite)
        for (int r = 0; r < s.count; ++r)
          Block::add_visible_values(p, keys, s.rules[r], s.weights + r * kTile, o + r * o_stride);
      else
        multiply_rows(s.count, s.weights, kTile, block.v, o_stride * kPair,
                      (s.needed + kPair - 1) / kPair, static_cast<int>(o_stride / kLanes), o,
                      o_stride, true);
    }
  }

  /// Rules of the strip's rows, which begin at `token` and `head` of the item; moves both behind
  /// the strip.
  static void survey(const dense::Params& p, const dense::Item& item, std::int64_t tile,
                     const dense::TileRows& keys, std::int64_t& token, std::int64_t& head,
                     Strip& s) {
    s.needed = 0;
    int last_from = keys.from;
    int first_to = kTile;
    bool bits = false;
    for (int r = 0; r < s.count; ++r) {
      softmax::RowRule& rule = s.rules[r];
      Io::set_rule(p, item, token, head, tile, keys.from, keys.to, rule);
      if (rule.from < rule.to && rule.to > s.needed) s.needed = rule.to;
      if (rule.from > last_from) last_from = rule.from;
      if (rule.to < first_to) first_to = rule.to;
      bits = bits || rule.bits != nullptr;
      if (++head == item.num_heads) {
        head = 0;
        ++token;
      }
    }
    // A product may reach further than anybody looks.
    s.hidden = last_from > keys.from || first_to < s.needed || bits ||
               (s.needed % kPair != 0 && s.needed < keys.to);
  }

  /// Queries for score_lanes, kLanes rows together: [head_dim_qk / kPair][kLanes][kPair] each.
  static void turn_queries(const dense::Params& p, const Block& block, Number* out) {
    const std::int64_t stride = p.scratch.q_stride;
    for (std::int64_t row = 0; row < block.rows; row += kLanes)
      for (std::int64_t d = 0; d < stride; d += Unit::kNumbers) {
        Operand m[kLanes];
        simd::unroll<kLanes>([&](auto i) {
          m[i] = row + i < block.rows ? Unit::load(block.q + (row + i) * stride + d) : Unit::zero();
        });
        Unit::transpose(m);
        Number* const to = out + row * stride + d * kLanes;
        simd::unroll<kLanes>([&](auto i) { Unit::store(to + i * kPair * kLanes, m[i]); });
      }
  }

  /// A whole tile, of which each kLanes keys lie at one distance from each other.
  static bool evenly_spaced(const dense::TileRows& keys) {
    if (!kInPlace || keys.from != 0 || keys.to != kTile) return false;
    for (int key = 0; key < kTile; key += kLanes) {
      const char* const first = keys.k[key];
      const std::int64_t step = keys.k[key + 1] - first;
      for (int i = 2; i < kLanes; ++i)
        if (keys.k[key + i] != first + i * step) return false;
    }
    return true;
  }

  /// Scores [row][kTile] of up to kLanes rows, rows as lanes; with kFetch also requests for
  /// `ahead`, which is evenly spaced too. Sums are formed in the order of register_tile: the same
  /// bits.
  template <bool kFetch>
  static void score_lanes(const dense::Params& p, const dense::TileRows& keys,
                          const dense::TileRows& ahead, const Number* q, float* scores) {
    constexpr std::int64_t kPairBytes = kPair * kBytes;
    const std::int64_t row_bytes = p.head_dim_qk * kBytes;
    for (int key = 0; key < kTile; key += kLanes) {
      const char* const first = keys.k[key];
      const std::int64_t step = keys.k[key + 1] - first;
      const char* const base[2] = {first, first + 8 * step};
      const std::int64_t odd[4] = {step, 3 * step, 5 * step, 7 * step};
      // Few registers for many addresses: multiples of a step by 1, 2 and 4 are free.
      const auto key_at = [&](auto i) -> const char* {
        constexpr int n = i % 8;
        const char* const from = base[i / 8];
        if constexpr (n == 0) return from;
        if constexpr (n % 2 == 1) return from + odd[n / 2];
        if constexpr (n == 6) return from + 2 * odd[1];
        if constexpr (n == 2 || n == 4) return from + n * odd[0];
      };
      F sums[kLanes];
      simd::unroll<kLanes>([&](auto i) { sums[i] = V::zero(); });
      const char* line = nullptr;
      const std::int64_t ahead_step = ahead.k[key + 1] - ahead.k[key];
      const auto multiply_pair = [&](std::int64_t at) {
        const Operand x = Unit::load(q + at / kBytes * kLanes);
        simd::unroll<kLanes>([&](auto i) {
          const auto* const pair = reinterpret_cast<const Number*>(key_at(i) + at);
          sums[i] = Unit::multiply_add(Unit::broadcast(pair), x, sums[i]);
        });
        if constexpr (kFetch) {
          // One request a step: the lines that the next tile's keys have here.
          V::prefetch(line);
          line += ahead_step;
        }
      };
      for (std::int64_t at = 0; at < row_bytes; at += kLine) {
        const std::int64_t end = at + kLine < row_bytes ? at + kLine : row_bytes;
        line = ahead.k[key] + at;
        std::int64_t pair = at;
        for (; pair + 2 * kPairBytes <= end; pair += 2 * kPairBytes) {
          multiply_pair(pair);
          multiply_pair(pair + kPairBytes);
        }
        if (pair < end) multiply_pair(pair);
      }
      V::transpose(sums);
      simd::unroll<kLanes>([&](auto i) { V::store(scores + i * kTile + key, sums[i]); });
    }
  }

  /// o += weights · values of up to kLanes rows, from values as they lie. Rows beyond the strip's
  /// last weigh nothing and have room in o. The order of register_tile.
  static void add_values_in_place(const dense::Params& p, const dense::TileRows& keys, Strip& s,
                                  float* o) {
    constexpr int kRows = 8;  // with kPair columns 16 sums, for 10 loads
    static_assert(kLanes % kRows == 0);
    const std::int64_t o_stride = p.scratch.o_stride;
    for (int i = s.count * kTile; i < kLanes * kTile; ++i) s.weights[i] = 0;
    for (std::int64_t d = 0; d < p.head_dim_vo; d += Unit::kNumbers) {
      for (int row = 0; row < s.count; row += kRows) {
        const Number* const weights = s.weights + row * kTile;
        float* const to = o + row * o_stride + d;
        F sums[kRows * kPair];
        simd::unroll<kRows * kPair>(
            [&](auto i) { sums[i] = V::load(to + i / kPair * o_stride + i % kPair * kLanes); });
        for (int key = 0; key < kTile; key += kPair) {
          Operand in[kPair];
          Operand x[kPair];
          simd::unroll<kPair>(
              [&](auto i) { in[i] = Unit::template load_as<T>(keys.v[key + i] + d * kBytes); });
          Unit::columns(in, x);
          simd::unroll<kRows>([&](auto r) {
            const Operand weight = Unit::broadcast(weights + r * kTile + key);
            simd::unroll<kPair>([&](auto c) {
              F& sum = sums[r * kPair + c];
              sum = Unit::multiply_add(weight, x[c], sum);
            });
          });
        }
        simd::unroll<kRows * kPair>(
            [&](auto i) { V::store(to + i / kPair * o_stride + i % kPair * kLanes, sums[i]); });
      }
    }
  }

  static void pack_keys(const dense::Params& p, const dense::TileRows& keys,
                        const dense::TileRows* next, Number* out) {
    for (std::int64_t d = 0; d < p.head_dim_qk; d += Unit::kNumbers) {
      const std::int64_t left = p.head_dim_qk - d;
      const int n = left < Unit::kNumbers ? static_cast<int>(left) : Unit::kNumbers;
      const int pairs = (n + kPair - 1) / kPair;
      for (int key = 0; key < kTile; key += kLanes) {
        Operand m[kLanes];
        simd::unroll<kLanes>([&](auto i) {
          const char* const row = keys.k[key + i];
          if (row == nullptr)
            m[i] = Unit::zero();
          else if (n == Unit::kNumbers)
            m[i] = Unit::template load_as<T>(row + d * kBytes);
          else
            m[i] = Unit::template load_as_n<T>(row + d * kBytes, n);
        });
        if (next != nullptr && d * kBytes % kLine == 0) {
          for (int i = key > next->from ? key : next->from; i < key + kLanes && i < next->to; ++i)
            V::prefetch(next->k[i] + d * kBytes);
        }
        Unit::transpose(m);
        Number* const to = out + d * kTile + key * kPair;
        simd::unroll<kLanes>([&](auto i) {
          if (i < pairs) Unit::store(to + i * kTile * kPair, m[i]);
        });
      }
    }
  }

  static void pack_values(const dense::Params& p, const dense::TileRows& keys, Number* out) {
    const std::int64_t o_stride = p.scratch.o_stride;
    for (int key = 0; key < kTile; key += kPair) {
      Number* const to = out + key * o_stride;
      for (std::int64_t d = 0; d < o_stride; d += Unit::kNumbers) {
        const std::int64_t left = p.head_dim_vo - d;
        Operand in[kPair];
        simd::unroll<kPair>([&](auto i) {
          const char* const row = keys.v[key + i];
          if (row == nullptr || left <= 0)
            in[i] = Unit::zero();
          else if (left >= Unit::kNumbers)
            in[i] = Unit::template load_as<T>(row + d * kBytes);
          else
            in[i] = Unit::template load_as_n<T>(row + d * kBytes, static_cast<int>(left));
        });
        Operand columns[kPair];
        Unit::columns(in, columns);
        simd::unroll<kPair>(
            [&](auto i) { Unit::store(to + d * kPair + i * kLanes * kPair, columns[i]); });
      }
    }
  }

  static void multiply_rows(int rows, const Number* a, std::int64_t a_stride, const Number* b,
                            std::int64_t b_stride, int pairs, int columns, float* c,
                            std::int64_t c_stride, bool add) {
    switch (rows) {
      case 1: return multiply<1>(a, a_stride, b, b_stride, pairs, columns, c, c_stride, add);
      case 2: return multiply<2>(a, a_stride, b, b_stride, pairs, columns, c, c_stride, add);
      case 3: return multiply<3>(a, a_stride, b, b_stride, pairs, columns, c, c_stride, add);
      case 4: return multiply<4>(a, a_stride, b, b_stride, pairs, columns, c, c_stride, add);
      case 5: return multiply<5>(a, a_stride, b, b_stride, pairs, columns, c, c_stride, add);
      default: return multiply<6>(a, a_stride, b, b_stride, pairs, columns, c, c_stride, add);
    }
  }

  template <int R>
  static void multiply(const Number* a, std::int64_t a_stride, const Number* b,
                       std::int64_t b_stride, int pairs, int columns, float* c,
                       std::int64_t c_stride, bool add) {
    constexpr int kWide = V::kNumColumns;
    int col = 0;
    for (; col + kWide <= columns; col += kWide)
      register_tile<R, kWide>(a, a_stride, b + col * kLanes * kPair, b_stride, pairs,
                              c + col * kLanes, c_stride, add);
    if constexpr (kWide > 2) {
      for (; col + 2 <= columns; col += 2)
        register_tile<R, 2>(a, a_stride, b + col * kLanes * kPair, b_stride, pairs,
                            c + col * kLanes, c_stride, add);
    }
    for (; col < columns; ++col)
      register_tile<R, 1>(a, a_stride, b + col * kLanes * kPair, b_stride, pairs, c + col * kLanes,
                          c_stride, add);
  }

  /// c[R][C vectors] (+)= a[R][pairs] · b[pairs][C vectors], all sums in registers.
  template <int R, int C>
  static void register_tile(const Number* a, std::int64_t a_stride, const Number* b,
                            std::int64_t b_stride, int pairs, float* c, std::int64_t c_stride,
                            bool add) {
    F sums[R * C];
    if (add) {
      simd::unroll<R>([&](auto r) {
        simd::unroll<C>([&](auto j) { sums[r * C + j] = V::load(c + r * c_stride + j * kLanes); });
      });
    } else {
      simd::unroll<R * C>([&](auto i) { sums[i] = V::zero(); });
    }
    for (int i = 0; i < pairs; ++i) {
      Operand x[C];
      simd::unroll<C>([&](auto j) { x[j] = Unit::load(b + j * kLanes * kPair); });
      simd::unroll<R>([&](auto r) {
        const Operand y = Unit::broadcast(a + r * a_stride + i * kPair);
        simd::unroll<C>(
            [&](auto j) { sums[r * C + j] = Unit::multiply_add(y, x[j], sums[r * C + j]); });
      });
      b += b_stride;
    }
    simd::unroll<R>([&](auto r) {
      simd::unroll<C>([&](auto j) { V::store(c + r * c_stride + j * kLanes, sums[r * C + j]); });
    });
  }
};

}  // namespace attune::kernels::ragged_prefill
