// Decode of keys in bf16 or 8-bit floating point on tile registers (layer kernels).
//
// Four rows do not fill a tile, but vector units would be busy longer than memory is: as fused
// multiply-adds 64 numbers of 8 bits take 14 instructions to widen and four more for each row, here
// 12 and a share of a tile, and those of 16 bits, which are multiplied where they lie, only the
// share (docs/performance/cpu.md). A run of keys that are no bf16, or that is not whole, becomes bf16
// in a buffer. Its keys are the rows of A, queries, packed once, the columns of B. Values are
// multiplied as they lie: a row of B is 32 numbers of one key, an even and an odd dim a cell, and
// weights come twice, in rows of A of their own, against zeros in the odd places and in the even
// ones (ragged_prefill/values_in_place.hpp has the same for more rows).
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
#include "kernels/paged_decode/fetch.hpp"
#include "kernels/paged_decode/loop.hpp"
#include "kernels/paged_decode/policy.hpp"
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
  using Run = typename Fetch<V>::Run;
  using Tiles = typename Unit::Tiles;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr int kSide = tile::kSide;
  static constexpr int kRun = Unit::template kRun<T>;
  static constexpr int kPackedKeys = 0;
  static constexpr int kMostDims = 256;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;
  static constexpr int kStepDims = static_cast<int>(Fetch<V>::kLine / kBytes);
  static constexpr bool kInPlace = T == DType::bf16;
  static_assert(kSpan == kSide && kMaxGroup * 2 <= kSide);
  static_assert(sizeof(typename Other::Number) == 2 * sizeof(Number));

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    if (!takes(p.head_dim_qk) || !takes(p.head_dim_vo) || !takes_pages(p.kv.page_size))
      Body<Other, T>::run(p, item, scratch);
    else if (p.head_dim_qk == kUsual && p.head_dim_vo == kUsual)
      Loop<Unit, T>::template run<Math<kUsual>>(p, item, scratch);
    else
      Loop<Unit, T>::template run<Math<0>>(p, item, scratch);
  }

 private:
  static constexpr int kUsual = 128;  ///< the head dim that has code of its own

  static bool takes(int dims) { return dims % kStepDims == 0 && dims <= kMostDims; }
  /// Keys of 16 bits that do not lie evenly are multiplied faster than copied.
  static bool takes_pages(std::int64_t page_size) { return !kInPlace || page_size % kSpan == 0; }

  template <int kDims>
  class Math {
   public:
    Math(const dense::Params& p, const dense::Item& item, void* scratch)
        : p_(p),
          rows_(p.gqa_group_size),
          blocks_of_(kSide / rows_),
          last_head_(item.num_kv_heads - 1),
          q_(reinterpret_cast<Number*>(static_cast<char*>(scratch) + p.scratch.q)),
          o_(reinterpret_cast<float*>(static_cast<char*>(scratch) + p.scratch.o)) {
      // Floats would have room for it twice; what is written beyond the last columns has been read.
      Number* const rows = q_ + kMaxRows * p.scratch.q_stride;
      Io::load_queries(p, item, rows);
      const std::int64_t head_numbers = rows_ * p.scratch.q_stride;
      for (int n = 0; n < item.num_kv_heads; ++n)
        tile::pack_columns<Unit>(reinterpret_cast<const char*>(rows + n * head_numbers),
                                 p.scratch.q_stride * 2, rows_, q_ + n * head_numbers);
      // 0 sums of scores, 1 queries, 2 keys or values, 4 o, 6 weights.
      tile::Shapes shapes;
      for (const int t : {0, 1}) shapes.tile[t].bytes = rows_ * tile::kCellBytes;
      for (const int t : {4, 6}) shapes.tile[t].rows = 2 * rows_;
      tiles_.configure(shapes);
    }
    void release() {
      settle();
      tiles_.release();
    }

    void score(const Run& run, int n) {
      const Lying rows = take(run, kDims > 0 ? kDims : p_.head_dim_qk);
      waiting_ = {.head = n, .values = false, .key = run.from / kSpan * kSpan, .rows = rows};
    }

    float weigh(int row, int num_keys, const softmax::RowRule& rule, float& maximum, float* sum) {
      settle();
      float* const scores = scores_ + row * kTile;
      Number* const weights = weights_ + row * kTile;
      if (rule.from == 0 && rule.to == kTile && rule.bits == nullptr && Softmax::only_scales(rule))
        return Softmax::template update_whole<kTile>(scores, Softmax::log2_factor(rule), maximum,
                                                     sum, weights);
      const float shrink = Softmax::update(scores, num_keys, rule, maximum, sum, weights);
      // A tile takes in whole spans.
      if constexpr (Softmax::kStep < kSpan) {
        for (int i = num_keys; i % kSpan != 0; ++i) weights[i] = 0;
      }
      return shrink;
    }

    void add_values(const Run& run, int n) {
      const int key = run.from / kSpan * kSpan;
      const Number* const weights = weights_ + n * rows_ * kTile + key;
      for (int r = 0; r < rows_; ++r) {
        Number* const even = spread_[turn_ ^ 1] + 2 * r * tile::kDepth;
        V::spread_pairs(weights + r * kTile, even, even + tile::kDepth);
      }
      const Lying rows = take(run, kDims > 0 ? kDims : p_.head_dim_vo);
      turn_ ^= 1;
      waiting_ = {.head = n, .values = true, .key = key, .rows = rows};
    }

    void restore(int row) const {
      const std::int64_t dims = p_.head_dim_vo;
      float* const o = o_ + row * dims;
      float sums[kMostDims];
      std::memcpy(sums, o, static_cast<std::size_t>(dims) * sizeof(float));
      for (std::int64_t d = 0; d < dims; d += 2 * kSide) {
        std::memcpy(o + d, sums + d / 2, kSide * sizeof(float));
        std::memcpy(o + d + kSide, sums + dims / 2 + d / 2, kSide * sizeof(float));
        V::join_even_odd(o + d);
      }
    }

   private:
    /// The rows of a run in bf16, and its first tile of them.
    struct Lying {
      const char* at = nullptr;
      std::int64_t stride = 0;  ///< bytes from a row to the next
      std::int64_t step = 0;    ///< to the next tile
    };

    /// A run that is taken in but not yet multiplied: that is done between the rows of the next one,
    /// so that tiles and vectors are at work together and no tile waits for stores.
    struct Waiting {
      int head = -1;  ///< there is none
      bool values = false;
      int key = 0;  ///< of the tile
      Lying rows;
    };

    [[gnu::always_inline]] Lying take(const Run& run, std::int64_t dims) {
      if constexpr (kInPlace) {
        if (run.to - run.from == kSpan) {
          pass<false>(run, dims);
          const char* const first = run.row(run.from);
          return {.at = first, .stride = run.row(run.from + 1) - first, .step = tile::kLine};
        }
      }
      now_ ^= 1;
      pass<true>(run, dims);
      return {.at = reinterpret_cast<const char*>(wide_[now_]),
              .stride = tile::kLine,
              .step = static_cast<std::int64_t>(sizeof(Number)) * tile::kTileNumbers};
    }

    /// Goes over a run while the one before it is multiplied, and asks for what comes; kCopies: its
    /// rows become bf16, by 32 dims.
    template <bool kCopies>
    [[gnu::always_inline]] void pass(const Run& run, std::int64_t dims) {
      const int first = run.from / kSpan * kSpan;
      const std::int64_t steps = begin();
      for (int quarter = 0, step = 0; quarter < 4; ++quarter) {
        simd::unroll<kSide / 4>([&](auto i) {
          const int key = quarter * kSide / 4 + i;
          const char* const row = run.row(first + key);
          for (std::int64_t d = 0; d < dims; d += kStepDims) {
            run.asked.ask(row + d * kBytes, key, d * kBytes);
            if constexpr (kCopies) copy(row, d, wide_[now_] + key * tile::kDepth);
          }
        });
        for (; step < steps * (quarter + 1) / 4; ++step) multiply(step);
      }
      end();
    }

    /// kStepDims numbers of a row from d on.
    [[gnu::always_inline]] static void copy(const char* row, std::int64_t d, Number* to) {
      for (int part = 0; part < kStepDims; part += kRun * Unit::kNumbers) {
        Operand x[kRun];
        Unit::template load_run<T>(row + (d + part) * kBytes, x);
        simd::unroll<kRun>([&](auto i) {
          const std::int64_t at = d + part + i * Unit::kNumbers;
          Unit::store(to + at / tile::kDepth * tile::kTileNumbers + at % tile::kDepth, x[i]);
        });
      }
    }

    /// Multiplies what waits.
    void settle() {
      const std::int64_t steps = begin();
      for (std::int64_t step = 0; step < steps; ++step) multiply(step);
      end();
    }

    /// Returns the steps of the run that waits.
    std::int64_t begin() {
      if (waiting_.head < 0) return 0;
      if (waiting_.values)
        tiles_.template load<6>(spread_[turn_], tile::kLine);
      else
        tiles_.template zero<0>();
      const std::int64_t dims = kDims > 0         ? kDims
                                : waiting_.values ? p_.head_dim_vo
                                                  : p_.head_dim_qk;
      return dims / tile::kDepth;
    }

    /// What was multiplied is zeroed: tile/product.hpp says why.
    [[gnu::always_inline]] void multiply(std::int64_t step) {
      const Lying& rows = waiting_.rows;
      const char* const tile = rows.at + step * rows.step;
      if (waiting_.values) {
        const std::int64_t dims = kDims > 0 ? kDims : p_.head_dim_vo;
        float* const o = o_ + waiting_.head * rows_ * dims + step * kSide;
        const std::int64_t o_stride = dims / 2 * static_cast<std::int64_t>(sizeof(float));
        tiles_.template load<4>(o, o_stride);
        tiles_.template load<2>(tile, rows.stride);
        tiles_.template multiply_add<tile::Cells::bf16, 4, 6, 2>();
        tiles_.template zero<2>();
        tiles_.template store<4>(o, o_stride);
        tiles_.template zero<4>();
      } else {
        const std::int64_t dims = kDims > 0 ? kDims : p_.head_dim_qk;
        const Number* const q = q_ + (waiting_.head * dims + step * tile::kDepth) * rows_;
        tiles_.template load<1>(q, rows_ * tile::kCellBytes);
        tiles_.template load<2>(tile, rows.stride);
        tiles_.template multiply_add<tile::Cells::bf16, 0, 2, 1>();
        tiles_.template zero<1>();
        tiles_.template zero<2>();
      }
    }

    void end() {
      const int head = waiting_.head;
      waiting_.head = -1;
      if (head < 0) return;
      if (waiting_.values) {
        tiles_.template zero<6>();
        return;
      }
      const int place = head % blocks_of_;
      tiles_.template store<0>(turned_ + place * rows_, tile::kLine);
      tiles_.template zero<0>();
      if (place == blocks_of_ - 1 || head == last_head_)
        turn((head - place) * rows_, (place + 1) * rows_, waiting_.key);
    }

    /// Scores of 16 keys, [key][16 rows], go to their rows.
    void turn(int first_row, int count, int key) {
      for (int at = 0; at < kSide; at += kLanes) {
        for (int row = 0; row < count; row += kLanes) {
          F m[kLanes];
          simd::unroll<kLanes>([&](auto i) { m[i] = V::load(turned_ + (at + i) * kSide + row); });
          V::transpose(m);
          simd::unroll<kLanes>([&](auto i) {
            if (row + i < count) V::store(scores_ + (first_row + row + i) * kTile + key + at, m[i]);
          });
        }
      }
    }

    const dense::Params& p_;
    const int rows_;       ///< of a KV head
    const int blocks_of_;  ///< KV heads whose scores are turned together
    const int last_head_;
    Number* const q_;
    float* const o_;
    Tiles tiles_;
    Waiting waiting_;
    int now_ = 0;   ///< of two buffers of rows, the one last filled
    int turn_ = 0;  ///< likewise of weights
    alignas(64) Number wide_[2][kSide * kMostDims];
    alignas(64) Number spread_[2][tile::kTileNumbers];
    alignas(64) float turned_[kSide * kSide];
    alignas(64) float scores_[kMaxRows * kTile];
    alignas(64) Number weights_[kMaxRows * kTile];
  };
};

}  // namespace attune::kernels::paged_decode
