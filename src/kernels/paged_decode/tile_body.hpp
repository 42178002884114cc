// Decode of keys in bf16 or 8-bit floating point on tile registers (layer kernels).
//
// Four rows do not fill a tile, but vector units would be busy longer than memory is: as fused
// multiply-adds 64 numbers of 8 bits take 14 instructions to widen and four more for each row, here
// 12 and a share of a tile, and those of 16 bits, which are multiplied where they lie, only the
// share (docs/performance/cpu.md). Rows that are no bf16, or of a tile that is not whole, become bf16
// in a buffer. Keys are the rows of A, queries, packed once, the columns of B. Values are
// multiplied as they lie: a row of B is 32 numbers of one key, an even and an odd dim a cell, and
// weights come twice, in rows of A of their own, against zeros in the odd places and in the even
// ones (ragged_prefill/values_in_place.hpp has the same for more rows).
//
// An item is read a stage after the other: the keys, then the values, of one KV head and 64 keys, so
// that its queries and o are met once in a stage. A core that waits for products does not ask memory
// for anything, and one that only multiplies lets its miss buffers run empty: so beside the products
// of a stage's keys the weights of the stage before are made, and beside all of them the rows that
// are met next are asked for (stages.hpp).
//
//   scores (stage 1)    beside: weights of stage 0, its values asked for
//   values (stage 0)    beside: scores of stage 1 go to their rows, keys of stage 2 asked for
//   scores (stage 2)    …
//
// Rows of 8 bits are asked for one such part earlier, and become bf16 a portion at a time, half of the
// keys or 64 dims of the values, each beside the products of the portion before it.
//
//   queries   by KV head: [head_dim_qk / 2 cells][its rows][cell]
//   o         by row: sums of the even dims, then of the odd ones, until restore
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/paged_decode/body.hpp"
#include "kernels/paged_decode/loop.hpp"
#include "kernels/paged_decode/policy.hpp"
#include "kernels/paged_decode/stages.hpp"
#include "kernels/simd/unroll.hpp"
#include "kernels/softmax/online_softmax.hpp"
#include "kernels/tile/columns.hpp"
#include "kernels/tile/product.hpp"

namespace attune::kernels::paged_decode {

/// Other: the unit that multiplies rows that tiles do not take; its numbers are floats.
template <class Unit, class Other, DType T>
struct TileBody {
  using V = typename Unit::V;
  using F = typename Unit::F;
  using Number = typename Unit::Number;
  using Operand = typename Unit::Operand;
  using Io = dense::RowIo<Unit, T>;
  using Softmax = softmax::OnlineSoftmax<Unit>;
  using Tiles = typename Unit::Tiles;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr int kSide = tile::kSide;
  static constexpr int kSpans = kTile / kSpan;
  static constexpr int kRun = Unit::template kRun<T>;
  static constexpr int kPackedKeys = 0;
  static constexpr int kMostDims = 256;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;
  static constexpr std::int64_t kLine = tile::kLine;
  static constexpr int kStepDims = static_cast<int>(kLine / kBytes);
  static constexpr bool kInPlace = T == DType::bf16;
  /// Codes are unpacked in an order that queries are put into, and o is brought back from.
  static constexpr bool kReorders = kRun == 2;
  static_assert(kSpan == kSide && kMaxGroup * 2 <= kSide);
  static_assert(sizeof(typename Other::Number) == 2 * sizeof(Number));

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    if (!takes(p.head_dim_qk) || !takes(p.head_dim_vo) || !takes_pages(p.kv.page_size))
      Body<Other, T>::run(p, item, scratch);
    else if (p.head_dim_qk == kUsual && p.head_dim_vo == kUsual)
      Products<kUsual>(p, item, scratch).run();
    else
      Products<0>(p, item, scratch).run();
  }

 private:
  static constexpr int kUsual = 128;  ///< the head dim that has code of its own

  static bool takes(int dims) { return dims % kStepDims == 0 && dims <= kMostDims; }
  /// Keys of 16 bits that do not lie evenly are multiplied faster than copied.
  static bool takes_pages(std::int64_t page_size) { return !kInPlace || page_size % kSpan == 0; }

  template <int kDims>
  class Products {
   public:
    Products(const dense::Params& p, const dense::Item& item, void* scratch)
        : p_(p),
          item_(item),
          rows_(p.gqa_group_size),
          stages_(p, item),
          steps_(static_cast<int>((kDims > 0 ? kDims : p.head_dim_qk) / tile::kDepth)),
          blocks_(static_cast<int>((kDims > 0 ? kDims : p.head_dim_vo) / tile::kDepth)),
          q_(reinterpret_cast<Number*>(static_cast<char*>(scratch) + p.scratch.q)),
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
    using Walk = Stages<Unit, T, kDims>;
    using Side = typename Walk::Side;

    /// A span's rows in bf16.
    struct Lying {
      const char* at = nullptr;
      std::int64_t stride = 0;  ///< bytes from a row to the next
      std::int64_t step = 0;    ///< to the next 32 dims
    };

    [[nodiscard]] int steps() const { return kDims > 0 ? kDims / tile::kDepth : steps_; }
    [[nodiscard]] int blocks() const { return kDims > 0 ? kDims / tile::kDepth : blocks_; }
    /// Portions of a stage's values, of two blocks of 32 dims each but perhaps the last.
    [[nodiscard]] int portions() const { return (blocks() + 1) / 2; }
    [[nodiscard]] int blocks_of(int portion) const {
      return blocks() - 2 * portion < 2 ? blocks() - 2 * portion : 2;
    }
    [[nodiscard]] std::int64_t dims() const { return blocks() * tile::kDepth; }

    void begin() {
      const int rows = item_.num_heads;
      for (int r = 0; r < rows; ++r) maximum_[r] = softmax::kNone;
      for (std::int64_t i = 0; i < rows * kLanes; i += kLanes) V::store(sum_ + i, V::zero());
      for (std::int64_t i = 0; i < rows * p_.scratch.o_stride; i += kLanes)
        V::store(o_ + i, V::zero());
      // Floats would have room for it twice; what is written beyond the last columns has been read.
      Number* const q = q_ + kMaxRows * p_.scratch.q_stride;
      Io::load_queries(p_, item_, q);
      for (int r = 0; kReorders && r < rows; ++r)
        Unit::template order_as_keys<T>(q + r * p_.scratch.q_stride, p_.scratch.q_stride);
      const std::int64_t head_numbers = rows_ * p_.scratch.q_stride;
      for (int n = 0; n < item_.num_kv_heads; ++n)
        tile::pack_columns<Unit>(reinterpret_cast<const char*>(q + n * head_numbers),
                                 p_.scratch.q_stride * 2, rows_, q_ + n * head_numbers);
      // 0, 1 sums of scores, 2 queries, 3, 7 keys or values, 4, 5 o, 6 weights. As few names as do:
      // a core whose other thread is at work has hardly more tiles (tile/product.hpp).
      tile::Shapes shapes;
      for (const int t : {0, 1, 2}) shapes.tile[t].bytes = rows_ * tile::kCellBytes;
      for (const int t : {4, 5, 6}) shapes.tile[t].rows = 2 * rows_;
      tiles_.configure(shapes);
    }

    /// Scores of the first stage, and what step() counts on.
    void start(const Stage& first) {
      Stage then = first;
      stages_.advance(then);
      const Stage after = stages_.tile_after(first);
      stages_.ask_first_values();
      if constexpr (!kInPlace)
        share(0, 1, [&](int row) { widen_keys(first, 0, row, wide_keys(0)); });
      score(first, [&](int slot, int slots) {
        share(slot, slots, [&](int row) {
          stages_.ask_keys(then, first, after, row);
          stages_.ask_values(first, first, after, row);
        });
        if constexpr (!kInPlace)
          if (slot < slots / 2)
            share(slot, slots / 2, [&](int row) { widen_keys(first, 1, row, wide_keys(1)); });
      });
      if constexpr (!kInPlace)
        share(0, 1, [&](int row) { widen_keys(then, 0, row, wide_keys(0)); });
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
      rule_ = Io::common_rule(p_, item_, item_.kv_head + now.head);
      const Stage after = stages_.tile_after(then);
      const auto beside_scores = [&](int slot, int slots) {
        share(slot, slots, [&](int row) {
          if constexpr (kInPlace)
            stages_.ask_values(now, then, after, row);
          else
            stages_.ask_keys(later, then, after, row);
        });
        if constexpr (!kInPlace) {
          if (slot < slots / 2)
            share(slot, slots / 2, [&](int row) { widen_keys(then, 1, row, wide_keys(1)); });
          else
            share(slot - slots / 2, slots / 2, [&](int row) { widen_values(now, 0, row); });
        }
        // Early: values are not to wait for their weights.
        if (slot < slots / 2) share_of(rows_, slot, slots / 2, [&](int r) { weigh(now, r); });
      };
      if (more) {
        score(then, beside_scores);
      } else {
        beside_scores(0, 2);
        beside_scores(1, 2);
      }
      add_values(now, [&](int slot, int slots, int portion, int slot_of_portion, int slots_of_it) {
        share(slot, slots, [&](int row) {
          if constexpr (kInPlace)
            stages_.ask_keys(later, then, after, row);
          else
            stages_.ask_values(then, then, after, row);
        });
        if constexpr (!kInPlace)
          share(slot_of_portion, slots_of_it, [&](int row) {
            if (portion + 1 < portions())
              widen_values(now, portion + 1, row);
            else
              widen_keys(later, 0, row, wide_values(portions()));
          });
        if (more) share_of(kSpans, slot, slots, [&](int span) { turn(span); });
      });
      if (portions() % 2 == 1) first_wide_ ^= 1;
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

    /// Where rows that become bf16 lie: a stage's halves of keys and portions of values take turns.
    [[nodiscard]] Number* wide_keys(int half) { return wide_[first_wide_ ^ half]; }
    [[nodiscard]] Number* wide_values(int portion) { return wide_[first_wide_ ^ (portion & 1)]; }

    /// Row `row` of each span of a half of the keys.
    [[gnu::always_inline]] void widen_keys(const Stage& s, int half, int row, Number* wide) {
      const Side side = stages_.keys_of(s);
      simd::unroll<kSpans / 2>([&](auto i) {
        widen(side.row((half * kSpans / 2 + i) * kSpan + row), steps(),
              wide + i * steps() * tile::kTileNumbers + row * tile::kDepth);
      });
    }
    [[gnu::always_inline]] void widen_values(const Stage& s, int portion, int row) {
      const Side side = stages_.values_of(s);
      Number* const wide = wide_values(portion);
      simd::unroll<kSpans>([&](auto i) {
        widen(side.row(i * kSpan + row) + portion * 2 * tile::kDepth * kBytes, blocks_of(portion),
              wide + i * 2 * tile::kTileNumbers + row * tile::kDepth);
      });
    }
    /// Numbers of a row, by 32 dims a tile apart.
    [[gnu::always_inline]] static void widen(const char* from, int count, Number* to) {
      constexpr int kAtOnce = kRun * Unit::kNumbers;
      for (std::int64_t d = 0; d < count * tile::kDepth; d += kAtOnce) {
        Operand x[kRun];
        if constexpr (kReorders)
          Unit::template load_keys<T>(from + d * kBytes, x);
        else
          Unit::template load_run<T>(from + d * kBytes, x);
        simd::unroll<kRun>([&](auto i) {
          const std::int64_t at = d + i * Unit::kNumbers;
          Unit::store(to + at / tile::kDepth * tile::kTileNumbers + at % tile::kDepth, x[i]);
        });
      }
    }

    /// Whether tiles find the stage's rows where they lie.
    static bool whole(const Stage& s) {
      return kInPlace && s.rows->from == 0 && s.rows->to == kTile;
    }
    [[gnu::always_inline]] static Lying in_place(const Side& side, int span) {
      const char* const first = side.row(span * kSpan);
      return {first, side.row(span * kSpan + 1) - first, kLine};
    }

    /// Scores of a stage, two spans at a time; `beside(slot, slots)` behind each product.
    template <class Beside>
    [[gnu::always_inline]] void score(const Stage& s, Beside&& beside) {
      const std::int64_t row_bytes = rows_ * tile::kCellBytes;
      const Number* const q = q_ + s.head * rows_ * steps() * tile::kDepth;
      const int slots = kSpans * steps();
      for (int half = 0; half < 2; ++half) {
        Lying left{reinterpret_cast<const char*>(wide_keys(half)), kLine, kSide * kLine};
        Lying right = left;
        right.at += steps() * right.step;
        if (whole(s)) {
          left = in_place(stages_.keys_of(s), 2 * half);
          right = in_place(stages_.keys_of(s), 2 * half + 1);
        } else if (kInPlace) {
          share(0, 1, [&](int row) { widen_keys(s, half, row, wide_keys(half)); });
        }
        tiles_.template zero<0>();
        tiles_.template zero<1>();
        for (int step = 0; step < steps(); ++step) {
          const int slot = 2 * (half * steps() + step);
          tiles_.template load<2>(q + step * tile::kDepth * rows_, row_bytes);
          tiles_.template load<3>(left.at + step * left.step, left.stride);
          tiles_.template multiply_add<tile::Cells::bf16, 0, 3, 2>();
          tiles_.template zero<3>();
          beside(slot, slots);
          tiles_.template load<7>(right.at + step * right.step, right.stride);
          tiles_.template multiply_add<tile::Cells::bf16, 1, 7, 2>();
          tiles_.template zero<7>();
          tiles_.template zero<2>();
          beside(slot + 1, slots);
        }
        float* const to = turned_ + 2 * half * kSpan * rows_;
        tiles_.template store<0>(to, row_bytes);
        tiles_.template store<1>(to + kSpan * rows_, row_bytes);
        tiles_.template zero<0>();
        tiles_.template zero<1>();
      }
    }

    /// Scores of row `r` become weights.
    void weigh(const Stage& s, int r) {
      const int row = s.head * rows_ + r;
      Io::set_rule(p_, item_, 0, row, s.tile, s.rows->from, s.rows->to, rule_);
      float* const scores = scores_ + r * kTile;
      float* const sum = sum_ + row * kLanes;
      float shrink;
      if (rule_.from == 0 && rule_.to == kTile && rule_.bits == nullptr &&
          Softmax::only_scales(rule_))
        shrink = Softmax::template update_whole<kTile>(scores, Softmax::log2_factor(rule_),
                                                       maximum_[row], sum, weights_);
      else
        shrink = Softmax::update(scores, kTile, rule_, maximum_[row], sum, weights_);
      for (int span = 0; span < kSpans; ++span) {
        Number* const even = spread_ + (span * 2 * rows_ + 2 * r) * tile::kDepth;
        V::spread_pairs(weights_ + span * kSpan, even, even + tile::kDepth);
      }
      if (shrink != 1.0f) Softmax::scale(o_ + row * dims(), dims(), shrink);
    }

    /// o of the stage's head, a portion at a time; `beside(slot, slots, portion, …)` behind each
    /// product, with its place among all of them and among the portion's.
    template <class Beside>
    [[gnu::always_inline]] void add_values(const Stage& s, Beside&& beside) {
      const std::int64_t o_stride = dims() / 2 * static_cast<std::int64_t>(sizeof(float));
      const int slots = kSpans * blocks();
      for (int portion = 0; portion < portions(); ++portion) {
        const int first_slot = 2 * portion * kSpans;
        const bool two = blocks_of(portion) == 2;
        float* const o = o_ + s.head * rows_ * dims() + 2 * portion * kSide;
        if (kInPlace && !whole(s)) share(0, 1, [&](int row) { widen_values(s, portion, row); });
        tiles_.template load<4>(o, o_stride);
        if (two) tiles_.template load<5>(o + kSide, o_stride);
        simd::unroll<kSpans>([&](auto i) {
          Lying span{reinterpret_cast<const char*>(wide_values(portion)) + 2 * i * kSide * kLine,
                     kLine, kSide * kLine};
          if (whole(s)) {
            span = in_place(stages_.values_of(s), i);
            span.at += 2 * portion * span.step;
          }
          const int slot = (two ? 2 : 1) * i;
          const int slots_of_it = (two ? 2 : 1) * kSpans;
          tiles_.template load<6>(spread_ + i * 2 * rows_ * tile::kDepth, kLine);
          tiles_.template load<3>(span.at, span.stride);
          tiles_.template multiply_add<tile::Cells::bf16, 4, 6, 3>();
          tiles_.template zero<3>();
          beside(first_slot + slot, slots, portion, slot, slots_of_it);
          if (two) {
            tiles_.template load<7>(span.at + span.step, span.stride);
            tiles_.template multiply_add<tile::Cells::bf16, 5, 6, 7>();
            tiles_.template zero<7>();
            beside(first_slot + slot + 1, slots, portion, slot + 1, slots_of_it);
          }
          tiles_.template zero<6>();
        });
        tiles_.template store<4>(o, o_stride);
        if (two) tiles_.template store<5>(o + kSide, o_stride);
        tiles_.template zero<4>();
        tiles_.template zero<5>();
      }
    }

    /// Scores of a span, [16 keys][rows], go to their rows.
    [[gnu::always_inline]] void turn(int span) {
      const float* const from = turned_ + span * kSpan * rows_;
      float* const to = scores_ + span * kSpan;
      if constexpr (kLanes == kSpan) {
        switch (rows_) {
          case 1: return deal<1>(from, to);
          case 2: return deal<2>(from, to);
          case 4: return deal<4>(from, to);
          case 8: return deal<8>(from, to);
          default: break;
        }
      }
      for (int r = 0; r < rows_; ++r)
        for (int key = 0; key < kSpan; ++key) to[r * kTile + key] = from[key * rows_ + r];
    }
    template <int R>
    [[gnu::always_inline]] static void deal(const float* from, float* to) {
      F in[R];
      F out[R];
      simd::unroll<R>([&](auto i) { in[i] = V::load(from + i * kLanes); });
      V::deal(in, out);
      simd::unroll<R>([&](auto r) { V::store(to + r * kTile, out[r]); });
    }

    /// A row of o in the order of its columns.
    void restore(float* o) const {
      float sums[kMostDims];
      std::memcpy(sums, o, static_cast<std::size_t>(dims()) * sizeof(float));
      for (std::int64_t d = 0; d < dims(); d += 2 * kSide) {
        std::memcpy(o + d, sums + d / 2, kSide * sizeof(float));
        std::memcpy(o + d + kSide, sums + dims() / 2 + d / 2, kSide * sizeof(float));
        V::join_even_odd(o + d);
      }
      // Of 64 dims as their codes are unpacked, eights of one half of the vector and of the other.
      constexpr int kEight = 8;
      for (std::int64_t d = 0; kReorders && d < dims(); d += kEight * kEight) {
        std::memcpy(sums, o + d, sizeof(float) * kEight * kEight);
        simd::unroll<kEight>([&](auto i) {
          std::memcpy(o + d + i * kEight, sums + (i % 2 * 4 + i / 2) * kEight,
                      sizeof(float) * kEight);
        });
      }
    }

    const dense::Params& p_;
    const dense::Item& item_;
    const int rows_;  ///< of a KV head
    Walk stages_;
    const int steps_;   ///< 32 dims of keys each
    const int blocks_;  ///< likewise of values
    Number* const q_;
    float* const o_;
    float* const maximum_;
    float* const sum_;
    Tiles tiles_;
    softmax::RowRule rule_;
    int first_wide_ = 0;  ///< of two buffers, that of the first half of the next keys
    alignas(64) Number wide_[2][kTile / 2 * kMostDims];
    alignas(64) Number spread_[kSpans * tile::kTileNumbers];
    alignas(64) float turned_[kTile * kMaxGroup];
    alignas(64) float scores_[kMaxGroup * kTile];
    alignas(64) Number weights_[kTile];
  };
};

}  // namespace attune::kernels::paged_decode
