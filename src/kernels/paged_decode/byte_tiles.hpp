// Decode of keys and values that are signed bytes on tile registers (layer kernels).
//
// Nothing is widened and nothing packed but queries: both products are of bytes in fours, summed in 32
// bits without any error. A query becomes two signed digits of base 128 (tile/digits.hpp), columns of
// B beside one another; so do the weights of a row and tile, in units of the row's largest weight
// there. Keys are rows of A where they lie. Values are multiplied as they lie, too: a row of B is 64
// numbers of one key, four dims a cell, and a weight comes four times, in rows of A of its own, each
// time against zeros but for one place of a cell. Stages and what they ask for are tile_body.hpp's.
//
//   queries   by KV head: [head_dim_qk / 4 cells][its rows' high digits, then their low ones][cell]
//   o         by row: of every 64 dims the first of each four, then the second …, until restore
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/paged_decode/loop.hpp"
#include "kernels/paged_decode/policy.hpp"
#include "kernels/paged_decode/stages.hpp"
#include "kernels/simd/unroll.hpp"
#include "kernels/softmax/online_softmax.hpp"
#include "kernels/tile/columns.hpp"
#include "kernels/tile/digits.hpp"
#include "kernels/tile/product.hpp"

namespace attune::kernels::paged_decode {

/// Other: the body for rows that tiles do not take.
template <class Unit, class Other>
struct ByteTiles {
  using V = typename Unit::V;
  using F = typename Unit::F;
  using Number = typename Unit::Number;
  using Io = dense::RowIo<Unit, DType::i8>;
  using Softmax = softmax::OnlineSoftmax<dense::FmaUnit<V>>;  ///< weights in fp32
  using Digits = tile::Digits<Unit>;
  using Tiles = typename Unit::Tiles;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr int kSide = tile::kSide;
  static constexpr int kSpans = kTile / kSpan;
  static constexpr int kStep = 64;  ///< dims of a row of a tile
  static constexpr int kFour = 4;   ///< dims of a cell, and rows whose weights fill a tile
  static constexpr int kMostDims = 256;
  static constexpr int kDigitBits = 7;
  static constexpr int kPackedKeys = 0;
  static constexpr std::int64_t kLine = tile::kLine;
  static_assert(kSpan == kSide && kMaxGroup * 2 <= kSide && Digits::kBase == 1 << kDigitBits);

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    if (!takes(p.head_dim_qk) || !takes(p.head_dim_vo) || p.kv.page_size % kSpan != 0)
      Other::run(p, item, scratch);
    else if (p.head_dim_qk == kUsual && p.head_dim_vo == kUsual)
      Products<kUsual>(p, item, scratch).run();
    else
      Products<0>(p, item, scratch).run();
  }

 private:
  static constexpr int kUsual = 128;  ///< the head dim that has code of its own

  static bool takes(int dims) { return dims % kStep == 0 && dims <= kMostDims; }

  template <int kDims>
  class Products {
   public:
    Products(const dense::Params& p, const dense::Item& item, void* scratch)
        : p_(p),
          item_(item),
          rows_(p.gqa_group_size),
          stages_(p, item),
          steps_((kDims > 0 ? kDims : p.head_dim_qk) / kStep),
          blocks_((kDims > 0 ? kDims : p.head_dim_vo) / kStep),
          q_(static_cast<char*>(scratch) + p.scratch.q),
          o_(reinterpret_cast<float*>(static_cast<char*>(scratch) + p.scratch.o)),
          maximum_(reinterpret_cast<float*>(static_cast<char*>(scratch) + p.scratch.maximum)),
          sum_(reinterpret_cast<float*>(static_cast<char*>(scratch) + p.scratch.sum)) {}

    void run() {
      const bool any = item_.kv_begin < item_.kv_end;
      // Queries are made ready meanwhile.
      if (any) stages_.ask_first_keys();
      begin();
      if (any) {
        Stage now = stages_.first();
        start(now);
        while (step(now)) {
        }
      }
      tiles_.release();
      for (int r = 0; r < item_.num_heads; ++r) {
        float* const o = o_ + r * p_.scratch.o_stride;
        restore(o);
        Io::finish(p_, item_, r, o, maximum_[r], sum_ + r * kLanes);
      }
    }

   private:
    using Walk = Stages<Unit, DType::i8, kDims>;
    using Side = typename Walk::Side;

    /// A span's rows, and from one of them to the next.
    struct Lying {
      const char* at = nullptr;
      std::int64_t stride = 0;
    };

    [[nodiscard]] int steps() const { return kDims > 0 ? kDims / kStep : steps_; }
    [[nodiscard]] int blocks() const { return kDims > 0 ? kDims / kStep : blocks_; }
    [[nodiscard]] std::int64_t dims() const { return blocks() * kStep; }
    /// Fours of rows.
    [[nodiscard]] int fours() const { return (rows_ + kFour - 1) / kFour; }

    void begin() {
      const int rows = item_.num_heads;
      for (int r = 0; r < rows; ++r) maximum_[r] = softmax::kNone;
      for (std::int64_t i = 0; i < rows * kLanes; i += kLanes) V::store(sum_ + i, V::zero());
      for (std::int64_t i = 0; i < rows * p_.scratch.o_stride; i += kLanes)
        V::store(o_ + i, V::zero());
      pack_queries();
      // 0 sums of scores, 1 queries, 2 keys or weights, 3 values, 4 … 7 o.
      tile::Shapes shapes;
      for (const int t : {0, 1}) shapes.tile[t].bytes = 2 * rows_ * tile::kCellBytes;
      tiles_.configure(shapes);
    }

    /// Queries fill their place as they are, as digits and as columns, one KV head after the other.
    void pack_queries() {
      Io::load_queries(p_, item_, reinterpret_cast<Number*>(q_));
      const std::int64_t stride = steps() * kStep;
      char digits[2 * kMaxGroup * kMostDims];
      for (int n = 0; n < item_.num_kv_heads; ++n) {
        char* const head = q_ + n * 2 * rows_ * stride;
        for (int r = 0; r < rows_; ++r)
          value_[n * rows_ + r] =
              Digits::split(reinterpret_cast<const Number*>(head) + r * stride, stride,
                            digits + r * stride, digits + (rows_ + r) * stride);
        tile::pack_columns<Unit>(digits, stride, 2 * rows_, columns_);
        std::memcpy(head, columns_, static_cast<std::size_t>(2 * rows_ * stride));
      }
    }

    /// Scores of the first stage; step() counts on the next one's keys having been asked for.
    void start(const Stage& first) {
      Stage then = first;
      stages_.advance(then);
      const Stage after = stages_.tile_after(first);
      stages_.ask_first_values();
      score(first, [&](int slot, int slots) {
        share(slot, slots, [&](int row) {
          stages_.ask_keys(then, first, after, row);
          stages_.ask_values(first, first, after, row);
        });
      });
      for (int span = 0; span < kSpans; ++span) turn(span);
    }

    /// Weighs and adds what `now`'s scores are for, and makes those of the stage after it; false if
    /// that was the last.
    bool step(Stage& now) {
      Stage then = now;
      const bool more = stages_.advance(then);
      // What is there stands in where there is nothing to come: it is in the first cache.
      Stage later = then;
      if (more) stages_.advance(later);
      const Stage after = stages_.tile_after(then);
      rule_ = Io::common_rule(p_, item_, item_.kv_head + now.head);
      const auto beside = [&](int slot, int slots) {
        share(slot, slots, [&](int row) { stages_.ask_values(now, then, after, row); });
        // Early: values are not to wait for their weights.
        if (slot < slots / 2) share_of(rows_, slot, slots / 2, [&](int r) { weigh(now, r); });
      };
      if (more) {
        score(then, beside);
      } else {
        beside(0, 2);
        beside(1, 2);
      }
      add_values(now, [&](int slot, int slots) {
        share(slot, slots, [&](int row) { stages_.ask_keys(later, then, after, row); });
        if (more) share_of(kSpans, slot, slots, [&](int span) { turn(span); });
      });
      now = then;
      return more;
    }

    /// What slot `slot` of `slots` takes care of, of `count` things; of the rows of a span.
    template <class Each>
    [[gnu::always_inline]] static void share_of(int count, int slot, int slots, Each&& each) {
      for (int i = slot * count / slots; i < (slot + 1) * count / slots; ++i) each(i);
    }
    template <class Each>
    [[gnu::always_inline]] static void share(int slot, int slots, Each&& each) {
      share_of(kSide, slot, slots, each);
    }

    /// Where tiles find the spans of a side: in their pages, or copied where the tile is not whole.
    [[gnu::always_inline]] void find(const Stage& s, const Side& side, Lying (&spans)[kSpans]) {
      if (s.rows->from == 0 && s.rows->to == kTile) {
        simd::unroll<kSpans>([&](auto i) {
          const char* const first = side.row(i * kSpan);
          spans[i] = {first, side.row(i * kSpan + 1) - first};
        });
        return;
      }
      for (int i = 0; i < kTile; ++i)
        std::memcpy(copies_ + i * side.bytes, side.row(i), static_cast<std::size_t>(side.bytes));
      simd::unroll<kSpans>([&](auto i) {
        spans[i] = {copies_ + i * kSpan * side.bytes, side.bytes};
      });
    }

    /// Sums of a stage's scores; `beside(slot, slots)` behind each product.
    template <class Beside>
    [[gnu::always_inline]] void score(const Stage& s, Beside&& beside) {
      Lying spans[kSpans];
      find(s, stages_.keys_of(s), spans);
      const std::int64_t row_bytes = 2 * rows_ * tile::kCellBytes;
      const char* const q = q_ + s.head * 2 * rows_ * steps() * kStep;
      simd::unroll<kSpans>([&](auto i) {
        tiles_.template zero<0>();
        for (int step = 0; step < steps(); ++step) {
          tiles_.template load<1>(q + step * kSide * row_bytes, row_bytes);
          tiles_.template load<2>(spans[i].at + step * kStep, spans[i].stride);
          tiles_.template multiply_add<tile::Cells::int8, 0, 2, 1>();
          tiles_.template zero<1>();
          tiles_.template zero<2>();
          beside(i * steps() + step, kSpans * steps());
        }
        tiles_.template store<0>(turned_ + i * kSpan * 2 * rows_, row_bytes);
        tiles_.template zero<0>();
      });
    }

    /// Scores of row `r` become weights.
    void weigh(const Stage& s, int r) {
      const int row = s.head * rows_ + r;
      float* const scores = scores_ + r * kTile;
      Digits::template join<kTile>(scores, scores_ + (rows_ + r) * kTile, value_[row]);
      Io::set_rule(p_, item_, 0, row, s.tile, s.rows->from, s.rows->to, rule_);
      float* const sum = sum_ + row * kLanes;
      float shrink;
      if (rule_.from == 0 && rule_.to == kTile && rule_.bits == nullptr &&
          Softmax::only_scales(rule_))
        shrink = Softmax::template update_whole<kTile>(scores, Softmax::log2_factor(rule_),
                                                       maximum_[row], sum, fine_);
      else
        shrink = Softmax::update(scores, kTile, rule_, maximum_[row], sum, fine_);
      if (shrink != 1.0f) Softmax::scale(o_ + row * dims(), dims(), shrink);
      spread(r);
    }

    /// Weights of row `r` become digits, and those rows of A. NaN among them counts as nothing here:
    /// it is in the row's sum.
    void spread(int r) {
      F most = V::zero();
      for (int i = 0; i < kTile; i += kLanes) most = V::max(V::load(fine_ + i), most);
      const float largest = V::largest(most);
      constexpr float kLeast = 1e-30f;
      const F times = V::set(largest > kLeast ? Digits::kLargest / largest : 0.0f);
      unit_[r] = largest / Digits::kLargest;
      std::int8_t digits[2][kTile];
      for (int i = 0; i < kTile; i += kLanes)
        V::template store_digits<kDigitBits, true>(V::load(fine_ + i), times, digits[0] + i,
                                                   digits[1] + i);
      for (int digit = 0; digit < 2; ++digit)
        for (int span = 0; span < kSpans; ++span)
          V::spread_fours(digits[digit] + span * kSpan,
                          weights(r / kFour, span, digit) + r % kFour * kFour * kLine);
    }
    /// A tile of weights: of a four of rows four rows each.
    [[nodiscard]] char* weights(int four, int span, int digit) {
      return spread_ + ((four * kSpans + span) * 2 + digit) * kSide * kLine;
    }

    /// o of the stage's head, two blocks of 64 dims and four rows at a time.
    template <class Beside>
    [[gnu::always_inline]] void add_values(const Stage& s, Beside&& beside) {
      Lying spans[kSpans];
      find(s, stages_.values_of(s), spans);
      const int slots = fours() * blocks() * kSpans;
      int slot = 0;
      for (int four = 0; four < fours(); ++four) {
        for (int block = 0; block < blocks(); block += 2) {
          const bool two = block + 1 < blocks();
          simd::unroll<4>([&](auto t) { tiles_.template zero<4 + t>(); });
          simd::unroll<kSpans>([&](auto i) {
            const char* const at = spans[i].at + block * kStep;
            tiles_.template load<3>(at, spans[i].stride);
            tiles_.template load<2>(weights(four, i, 0), kLine);
            tiles_.template multiply_add<tile::Cells::int8, 4, 2, 3>();
            tiles_.template load<2>(weights(four, i, 1), kLine);
            tiles_.template multiply_add<tile::Cells::int8, 5, 2, 3>();
            beside(slot++, slots);
            if (two) {
              tiles_.template load<3>(at + kStep, spans[i].stride);
              tiles_.template multiply_add<tile::Cells::int8, 7, 2, 3>();
              tiles_.template load<2>(weights(four, i, 0), kLine);
              tiles_.template multiply_add<tile::Cells::int8, 6, 2, 3>();
              beside(slot++, slots);
            }
            tiles_.template zero<2>();
            tiles_.template zero<3>();
          });
          simd::unroll<4>([&](auto t) {
            tiles_.template store<4 + t>(products_ + t * kSide * kSide, kLine);
            tiles_.template zero<4 + t>();
          });
          for (int r = four * kFour; r < rows_ && r < (four + 1) * kFour; ++r)
            for (int b = 0; b < (two ? 2 : 1); ++b)
              add_row(r, b, o_ + (s.head * rows_ + r) * dims() + (block + b) * kStep);
        }
      }
    }
    /// Sums of a row's 64 dims.
    [[gnu::always_inline]] void add_row(int r, int block, float* o) const {
      const float* const high = products_ + 2 * block * kSide * kSide + r % kFour * kFour * kSide;
      const F unit = V::set(unit_[r]);
      for (int i = 0; i < kStep; i += kLanes)
        V::store(o + i,
                 V::fma(V::join_digits(high + i, high + kSide * kSide + i), unit, V::load(o + i)));
    }

    /// Sums of a span, [16 keys][high digits' rows, low ones'], go to their rows.
    [[gnu::always_inline]] void turn(int span) {
      const float* const from = turned_ + span * kSpan * 2 * rows_;
      float* const to = scores_ + span * kSpan;
      if constexpr (kLanes == kSpan) {
        switch (rows_) {
          case 1: return deal<2>(from, to);
          case 2: return deal<4>(from, to);
          case 4: return deal<8>(from, to);
          case 8: return deal<16>(from, to);
          default: break;
        }
      }
      for (int r = 0; r < 2 * rows_; ++r)
        for (int key = 0; key < kSpan; ++key)
          std::memcpy(to + r * kTile + key, from + key * 2 * rows_ + r, sizeof(float));
    }
    template <int R>
    [[gnu::always_inline]] static void deal(const float* from, float* to) {
      F in[R];
      simd::unroll<R>([&](auto i) { in[i] = V::load(from + i * kLanes); });
      if constexpr (R == kLanes) {
        V::transpose(in);
        simd::unroll<R>([&](auto r) { V::store(to + r * kTile, in[r]); });
      } else {
        F out[R];
        V::deal(in, out);
        simd::unroll<R>([&](auto r) { V::store(to + r * kTile, out[r]); });
      }
    }

    /// A row of o in the order of its columns.
    void restore(float* o) const {
      float sums[kStep];
      for (std::int64_t d = 0; d < dims(); d += kStep) {
        std::memcpy(sums, o + d, sizeof sums);
        for (int i = 0; i < kStep; ++i) o[d + i] = sums[i % kFour * kSide + i / kFour];
      }
    }

    const dense::Params& p_;
    const dense::Item& item_;
    const int rows_;  ///< of a KV head
    Walk stages_;
    const int steps_;   ///< 64 dims of keys each
    const int blocks_;  ///< likewise of values
    char* const q_;
    float* const o_;
    float* const maximum_;
    float* const sum_;
    Tiles tiles_;
    softmax::RowRule rule_;
    float value_[kMaxRows];  ///< of one unit of a row's queries
    float unit_[kMaxGroup];  ///< of one of a row's weights
    alignas(64) float turned_[kTile * 2 * kMaxGroup];
    alignas(64) float scores_[2 * kMaxGroup * kTile];
    alignas(64) float fine_[kTile];
    alignas(64) float products_[4 * kSide * kSide];
    alignas(64) char spread_[kMaxGroup / kFour * kSpans * 2 * kSide * kLine] = {};
    /// Queries of a head as columns, with room for an operand beyond the last.
    alignas(64) Number columns_[(2 * kMaxGroup + kLanes) * kMostDims / 2 + Unit::kNumbers];
    alignas(64) char copies_[kTile * kMostDims];
  };
};

}  // namespace attune::kernels::paged_decode
