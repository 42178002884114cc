// Prefill on tile registers: a block of query rows of one KV head against a range of keys (layer
// kernels).
//
// Panels of keys are packed once into tiles; strips of 32 rows pass over them. While the vector
// units weigh 64 keys of a strip, the tile unit forms the scores of the next 64 and adds the
// previous strip's values: steps of both are written alternately and overlap
// (docs/performance/cpu.md). Sums of a whole panel's values are formed in tile registers, so o is
// loaded and stored once a panel. Blocks of few rows go through few_rows.hpp, to
// the same bits where a row's must not depend on its neighbours. Latent keys of up to 128 rows are
// not packed: their scores come out keys by rows and are turned. Values always are.
//
//   packed K   [kPanel / 16 keys][dims of whole steps][16 cells of dims][16 keys][cell]
//
// Keys in int8 are multiplied as such where the unit can (Cells::int8): queries become two signed
// digits each (tile/digits.hpp), whose products with a key are summed in 32 bits, exactly.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/ragged_prefill/few_rows.hpp"
#include "kernels/ragged_prefill/latent_fetch.hpp"
#include "kernels/ragged_prefill/panel_fetch.hpp"
#include "kernels/ragged_prefill/policy.hpp"
#include "kernels/ragged_prefill/tile_panel.hpp"
#include "kernels/tile/columns.hpp"
#include "kernels/tile/digits.hpp"
#include "kernels/tile/product.hpp"

namespace attune::kernels::ragged_prefill {

inline constexpr int kBodySubs = 4;  ///< of a panel
/// Latent keys are long: packing one takes longer than turning the scores of so many rows.
inline constexpr std::int64_t kMostLatentRows = 128;
/// Asked for before anything else is done.
inline constexpr int kFirstLatentKeys = 128;

/// kLatent: keys are multiplied where they lie, as the rows of A, and queries are the columns of B.
template <class Unit, DType T, tile::Cells kCells = tile::Cells::bf16, bool kLatent = false>
class TileBody : TilePanel<Unit, T, kBodySubs> {
  using Panel = TilePanel<Unit, T, kBodySubs>;
  using Panel::block_;
  using Panel::fresh_;
  using Panel::item_;
  using Panel::kBlockKeys;
  using Panel::kBytes;
  using Panel::kLanes;
  using Panel::kPair;
  using Panel::kPanel;
  using Panel::kRows;
  using Panel::kSub;
  using Panel::kSubs;
  using Panel::kWeightStride;
  using Panel::p_;
  using Panel::panel_;
  using typename Panel::Block;
  using typename Panel::F;
  using typename Panel::Io;
  using typename Panel::Number;
  using typename Panel::Operand;
  using typename Panel::Softmax;
  using typename Panel::Strip;
  using typename Panel::V;
  using Multiplier = tile::Multiplier<Unit>;
  using Fetch = std::conditional_t<kLatent, LatentFetch<typename Panel::Io, kBodySubs, kBytes>,
                                   PanelFetch<typename Panel::Io, kBodySubs, kBytes>>;
  using Digits = tile::Digits<Unit>;
  static constexpr bool kDigits = kCells == tile::Cells::int8;
  /// Of products of queries and keys: a strip of latent queries meets its keys once.
  static constexpr tile::Once kOnce = kLatent ? tile::Once::rows : tile::Once::columns;
  static constexpr int kScoreBuffers = kDigits ? 2 : 1;
  static_assert(!kDigits || T == DType::i8);
  static_assert(!kLatent || (T == DType::bf16 && !kDigits));

 public:
  static constexpr int kPackedKeys = kPanel;
  /// What strides are multiples of: the dims that one product sums over.
  static constexpr int kStepDims = kDigits ? Digits::kStep : tile::kDepth;

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    const std::int64_t rows = item.num_tokens * item.num_heads;
    if (p.rows_alike) {
      using Few = FewRows<Unit, T, kCells, kBodySubs>;
      if (rows <= Few::kMostRows) return Few::run(p, item, scratch);
    } else {
      // Small panels: they are in a cache when they are met, and the next one is asked for early.
      using Few = FewRows<Unit, T, kCells, 1>;
      if constexpr (T == DType::bf16) {
        using Latent = FewRows<Unit, T, kCells, 1, true>;
        if (rows <= Few::kMostRows && Latent::are_latent(p)) return Latent::run(p, item, scratch);
      }
      if (rows <= Few::kMostRows) return Few::run(p, item, scratch);
      if constexpr (T == DType::bf16) {
        using Latent = TileBody<Unit, T, kCells, true>;
        if (rows <= kMostLatentRows && p.kv.v == p.kv.k) {
          Latent::Fetch::ask_first(p, item, kFirstLatentKeys);
          return Latent(p, item, scratch).run();
        }
      }
    }
    TileBody(p, item, scratch).run();
  }

 private:
  template <class, DType, tile::Cells, bool>
  friend class TileBody;

  TileBody(const dense::Params& p, const dense::Item& item, void* scratch)
      : Panel(p, item, scratch, Block::sums_fit(p, item, kRows)) {
    if (!kLatent || !this->reads_queries())
      block_.load_queries(p, item);
    else
      this->ask_for_queries(0, tile::kSide);
    if constexpr (kDigits)
      for (std::int64_t row = 0; row < block_.rows; ++row)
        digit_value_[row] =
            Digits::split_in_place(block_.q + row * p_.scratch.q_stride, p_.scratch.q_stride);
  }

  void run() {
    multiplier_.configure();
    int now = 0;
    std::int64_t panel = item_.kv_begin / kPanel * kPanel;
    if (panel < item_.kv_end) this->locate(panel, keys_[0]);
    if constexpr (kLatent) pack_queries();
    for (; panel < item_.kv_end; panel += kPanel, now ^= 1) {
      this->enter_panel(panel);
      this->locate(panel + kPanel, keys_[now ^ 1]);
      for (int sub = 0; sub < kSubs; ++sub) {
        const dense::TileRows& keys = keys_[now][sub];
        if (keys.from == keys.to) continue;
        Number* const room = block_.k + sub * kSub * key_stride();
        if constexpr (kLatent)
          find_keys(keys, room, evenly_[sub]);
        else
          pack_keys(keys, room);
        this->pack_values(keys, block_.v + sub * kSub * p_.scratch.o_stride);
      }
      pass_over(keys_[now], keys_[now ^ 1]);
      fresh_ = false;
    }
    multiplier_.release();
    block_.finish(p_, item_);
  }

  /// Numbers of the unit that a packed key takes.
  [[nodiscard]] std::int64_t key_stride() const { return p_.scratch.q_stride / (kDigits ? 2 : 1); }

  /// All strips over the packed panel, the next panel being fetched meanwhile.
  void pass_over(const dense::TileRows (&keys)[kSubs], const dense::TileRows (&next)[kSubs]) {
    // The next panel only: this one has just been packed. Once for every two rows and kSub keys.
    Fetch fetch(p_, keys, next, kPanel);
    fetch.spread((block_.rows + 1) / 2 * kSubs);
    Strip strips[3];
    int at = 0;
    this->find_strip(0, block_.rows, kRows, strips[0]);
    strips[0].weights = weights_[0];
    if (strips[0].count == 0) return;
    tile::Product scores = score_product(strips[0], strips[0].first_sub, scores_[0]);
    multiplier_.template finish<kCells, kOnce>(scores);

    tile::Product values;  // of the strip before
    for (int turn = 0, stage = 0; strips[at].count > 0; at = (at + 1) % 3, turn ^= 1) {
      Strip& strip = strips[at];
      Strip& then = strips[(at + 1) % 3];
      this->find_strip(strip.row + strip.count, block_.rows, kRows, then);
      then.weights = weights_[turn ^ 1];
      const int subs = strip.end_sub - strip.first_sub;
      for (int sub = strip.first_sub; sub < strip.end_sub; ++sub, stage ^= 1) {
        const bool last = sub + 1 == strip.end_sub;
        scores = {};
        if (!last)
          scores = score_product(strip, sub + 1, scores_[stage ^ 1]);
        else if (then.count > 0)
          scores = score_product(then, then.first_sub, scores_[stage ^ 1]);
        const int values_end =
            last ? values.blocks : values.blocks * (sub + 1 - strip.first_sub) / subs;
        weigh(strip, keys[sub], sub, scores_[stage], scores, values, values_end, fetch);
      }
      values = value_product(strip, keys);
    }
    multiplier_.finish(values);
  }

  [[nodiscard]] tile::Product score_product(const Strip& strip, int sub, float* scores) const {
    const std::int64_t q_stride = p_.scratch.q_stride;
    const int blocks = this->keys_of(strip, sub) / kBlockKeys;
    if constexpr (kLatent) {
      const std::int64_t stride = evenly_[sub].stride / kBytes;
      return {.a = reinterpret_cast<const Number*>(evenly_[sub].at),
              .a_stride = stride,
              .a_low = tile::kSide * stride,
              .a_step = tile::kDepth,
              .a_block = kBlockKeys * stride,
              .b = block_.q + strip.row * q_stride,
              .b_right = tile::kSide * q_stride,
              .b_step = tile::kTileNumbers,
              .c = scores,
              .c_stride = kRows,
              .c_low = tile::kSide * kRows,
              .c_row_block = kBlockKeys * kRows,
              .steps = static_cast<int>(q_stride / kStepDims),
              .blocks = blocks,
              .row_blocks = blocks};
    }
    tile::Product product{.a = block_.q + strip.row * q_stride,
                          .a_stride = q_stride,
                          .a_low = tile::kSide * q_stride,
                          .a_step = tile::kDepth,
                          .b = block_.k + sub * kSub * key_stride(),
                          .b_right = tile::kSide * key_stride(),
                          .b_step = tile::kTileNumbers,
                          .b_block = kBlockKeys * key_stride(),
                          .c = scores,
                          .c_stride = kSub,
                          .c_low = tile::kSide * kSub,
                          .c_block = kBlockKeys,
                          .low_rows = strip.count > tile::kSide,
                          .steps = static_cast<int>(q_stride / kStepDims),
                          .blocks = blocks};
    if constexpr (kDigits) {
      // Two tiles of rows are the high and the low digits of 16 rows.
      product.a_low = tile::kDepth;
      product.a_step = 2 * tile::kDepth;
      product.a_block = tile::kSide * q_stride;
      product.c_low = kRows * kSub;
      product.c_row_block = tile::kSide * kSub;
      product.row_blocks = strip.count > tile::kSide ? 2 : 1;
      product.blocks = blocks * product.row_blocks;
      product.low_rows = true;
    }
    return product;
  }

  /// o += weights · values of the strip, once its weights are known; nothing is left to do where
  /// that had to go the exact way.
  tile::Product value_product(const Strip& strip, const dense::TileRows (&keys)[kSubs]) {
    const std::int64_t o_stride = p_.scratch.o_stride;
    this->shrink_outputs(strip);
    const auto product = [&](int first, int end) {
      return tile::Product{.a = strip.weights + first * kWeightStride,
                           .a_stride = kBlockKeys,
                           .a_low = tile::kSide * kBlockKeys,
                           .a_step = kWeightStride,
                           .b = block_.v + first * kBlockKeys * o_stride,
                           .b_right = tile::kTileNumbers,
                           .b_step = kBlockKeys * o_stride,
                           .b_block = 2 * tile::kTileNumbers,
                           .c = block_.o + strip.row * o_stride,
                           .c_stride = o_stride,
                           .c_low = tile::kSide * o_stride,
                           .c_block = 2 * tile::kSide,
                           .add = !fresh_,
                           .low_rows = strip.count > tile::kSide,
                           .steps = end - first,
                           .blocks = static_cast<int>(o_stride / (2 * tile::kSide))};
    };
    constexpr int kBlocks = kSub / kBlockKeys;
    const int end = strip.end_key / kBlockKeys;
    if (!strip.exact) return product(strip.first_sub * kBlocks, end);
    for (int sub = strip.first_sub; sub < strip.end_sub; ++sub) {
      if (strip.exact_sub[sub]) {
        this->add_exactly(strip, keys[sub], sub);
      } else {
        const int last = (sub + 1) * kBlocks;
        tile::Product one = product(sub * kBlocks, last < end ? last : end);
        multiplier_.finish(one);
      }
    }
    return {};
  }

  /// Weights of kSub keys from their scores, and beside it the scores of the next and `values` as
  /// far as its block `values_end`.
  void weigh(Strip& strip, const dense::TileRows& keys, int sub, float* scores, tile::Product& next,
             tile::Product& values, int values_end, Fetch& fetch) {
    const bool whole = this->inspect(strip, keys, sub);
    const int span = this->keys_of(strip, sub);
    Number* const weights = strip.weights + sub * (kSub / kBlockKeys) * kWeightStride;
    if constexpr (kLatent) {
      turn(scores, turned_);
      scores = turned_;
    }
    const int value_blocks = values_end - values.block;
    const int halves = 2 * (next.blocks * next.steps + value_blocks * values.steps);
    for (int r = 0, due = 0; r < strip.count; ++r) {
      if constexpr (kDigits)
        Digits::template join<kSub>(scores + r * kSub, scores + (kRows + r) * kSub,
                                    digit_value_[strip.row + r]);
      if (whole)
        this->weigh_whole_row(strip, r, sub, scores, weights);
      else
        this->weigh_row(strip, r, sub, span, scores, weights);
      for (due += halves; due >= strip.count; due -= strip.count) {
        if (next.done())
          multiplier_.half_step(values);
        else
          multiplier_.template half_step<kCells, kOnce>(next);
      }
      if (r % 2 == 1 || r + 1 == strip.count) fetch.turn();
    }
    if (value_blocks == 0) multiplier_.settle();  // the scores are read next
  }

  /// Queries of whole strips, 16 of them the columns of a tile each step.
  void pack_queries() {
    for (std::int64_t row = 0; row < (block_.rows + kRows - 1) / kRows * kRows; row += tile::kSide)
      this->pack_rows(row, tile::kSide);
  }

  /// Keys of a sub, evenly spaced.
  struct Evenly {
    const char* at = nullptr;
    std::int64_t stride = 0;  ///< bytes
  };

  /// Where tiles find the sub's keys: where they lie, or copied.
  void find_keys(const dense::TileRows& keys, Number* room, Evenly& evenly) const {
    if (keys.from == 0 && keys.to == kSub && p_.head_dim_qk == p_.scratch.q_stride) {
      evenly = {keys.k[0], keys.k[1] - keys.k[0]};
      bool even = true;
      for (int i = 2; i < kSub; ++i) even = even && keys.k[i] - keys.k[i - 1] == evenly.stride;
      if (even) return;
    }
    evenly = {reinterpret_cast<const char*>(room), p_.scratch.q_stride * kBytes};
    for (int i = 0; i < kSub; ++i) {
      for (std::int64_t d = 0; d < p_.scratch.q_stride; d += Unit::kNumbers) {
        const std::int64_t left = p_.head_dim_qk - d;
        Unit::store(room + i * p_.scratch.q_stride + d,
                    keys.k[i] == nullptr || left <= 0
                        ? Unit::zero()
                        : Panel::template cells_of<kCells>(keys.k[i] + d * kBytes, left));
      }
    }
  }

  /// [kSub keys][kRows] → [kRows][kSub]
  static void turn(const float* from, float* to) {
    for (int key = 0; key < kSub; key += kLanes) {
      for (int row = 0; row < kRows; row += kLanes) {
        F m[kLanes];
        simd::unroll<kLanes>([&](auto i) { m[i] = V::load(from + (key + i) * kRows + row); });
        V::transpose(m);
        simd::unroll<kLanes>([&](auto i) { V::store(to + (row + i) * kSub + key, m[i]); });
      }
    }
  }

  void pack_keys(const dense::TileRows& keys, Number* out) const {
    constexpr std::int64_t kCellDims = kDigits ? 4 : 2;
    constexpr std::int64_t kOperandDims = kLanes * kCellDims;
    for (int key = 0; key < kSub; key += kLanes) {
      Number* const group =
          out + key / tile::kSide * tile::kSide * key_stride() + key % tile::kSide * kPair;
      // Tiles read whole operands: dims beyond the last are packed as zeros for them.
      for (std::int64_t d = 0; d < p_.scratch.q_stride; d += kOperandDims) {
        const std::int64_t left = p_.head_dim_qk - d;
        Operand m[kLanes];
        simd::unroll<kLanes>([&](auto i) {
          const char* const row = keys.k[key + i];
          m[i] = row == nullptr || left <= 0
                     ? Unit::zero()
                     : Panel::template cells_of<kCells>(row + d * kBytes, left);
        });
        Unit::transpose(m);
        simd::unroll<kLanes>([&](auto i) {
          const std::int64_t cell = d / kCellDims + i;
          Unit::store(group + cell * tile::kSide * kPair, m[i]);
        });
      }
    }
  }

  dense::TileRows keys_[2][kSubs];
  Multiplier multiplier_;
  float digit_value_[kDigits ? kMaxRows : 1];  ///< of a row's queries
  alignas(64) float scores_[2][kScoreBuffers * kRows * kSub];
  alignas(64) Number weights_[2][kPanel * kRows];
  Evenly evenly_[kLatent ? kSubs : 1];
  alignas(64) float turned_[kLatent ? kRows * kSub : 1];
};

}  // namespace attune::kernels::ragged_prefill
