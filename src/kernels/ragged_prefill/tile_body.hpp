// Prefill on tile registers: a block of query rows of one KV head against a range of keys (layer
// kernels).
//
// Panels of keys are packed once into tiles; strips of 32 rows pass over them. While the vector
// units weigh 64 keys of a strip, the tile unit forms the scores of the next 64 and adds the
// previous strip's values: steps of both are written alternately and overlap
// (docs/performance/cpu.md). Sums of a whole panel's values are formed in tile registers, so o is
// loaded and stored once a panel.
//
//   packed K   [kPanel / 16 keys][q_stride / 32][16 pairs of dims][16 keys][2]
//   packed V   [kPanel / 32 keys][o_stride / 16][16 pairs of keys][16 dims][2]
//   weights    [kPanel / 32 keys][32 rows][32 keys]
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/ragged_prefill/block.hpp"
#include "kernels/simd/unroll.hpp"
#include "kernels/softmax/online_softmax.hpp"
#include "kernels/tile/product.hpp"

namespace attune::kernels::ragged_prefill {

template <class Unit, DType T>
class TileBody {
  using V = typename Unit::V;
  using F = typename Unit::F;
  using Number = typename Unit::Number;
  using Operand = typename Unit::Operand;
  using Io = dense::RowIo<Unit, T>;
  using Softmax = softmax::OnlineSoftmax<Unit>;
  using Block = BlockOf<Unit, T>;
  using Multiplier = tile::Multiplier<typename Unit::Tiles>;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPair = Unit::kPair;
  static constexpr int kRows = Unit::kStripRows;
  static constexpr int kSub = dense::kKeyTile;  ///< keys weighed at a time
  static constexpr int kSubs = 4;
  static constexpr int kPanel = kSub * kSubs;
  static constexpr int kBlockKeys = Softmax::kWeightBlock;
  static constexpr std::int64_t kWeightStride = kRows * kBlockKeys;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;
  static constexpr std::int64_t kLine = 64;
  static_assert(kRows == 2 * tile::kSide && kBlockKeys == tile::kDepth && kPair == 2);

 public:
  static constexpr int kPackedKeys = kPanel;

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    TileBody(p, item, scratch).run();
  }

 private:
  /// 32 rows, or the last few, and the keys of the panel that any of them sees.
  struct Strip {
    std::int64_t row = 0;
    int count = 0;  ///< 0: there is none
    int first_sub = 0;
    int end_sub = 0;
    int end_key = 0;  ///< of the panel, a multiple of kBlockKeys
    Number* weights = nullptr;
    bool shrinks = false;
    bool exact = false;               ///< some sub is
    bool exact_sub[kSubs] = {};       ///< hidden keys whose values are not finite
    alignas(64) float shrink[kRows];  ///< on o as it was before the panel
  };

  enum class Values : std::uint8_t { unchecked, finite, not_finite };

  TileBody(const dense::Params& p, const dense::Item& item, void* scratch)
      : p_(p),
        item_(item),
        block_(Block::begin(p, item, scratch)),
        common_(Io::common_rule(p, item, item.kv_head)),
        simple_(Block::only_scales(p, common_)),
        factor_(Softmax::log2_factor(common_)) {}

  void run() {
    multiplier_.configure();
    int now = 0;
    panel_ = item_.kv_begin / kPanel * kPanel;
    if (panel_ < item_.kv_end) locate(panel_, keys_[0]);
    for (; panel_ < item_.kv_end; panel_ += kPanel, now ^= 1) {
      locate(panel_ + kPanel, keys_[now ^ 1]);
      for (int sub = 0; sub < kSubs; ++sub) {
        const dense::TileRows& keys = keys_[now][sub];
        values_[sub] = Values::unchecked;
        if (keys.from == keys.to) continue;
        pack_keys(keys, block_.k + sub * kSub * p_.scratch.q_stride);
        pack_values(keys, block_.v + sub * kSub * p_.scratch.o_stride);
      }
      pass_over(keys_[now], keys_[now ^ 1]);
    }
    multiplier_.release();
    block_.finish(p_, item_);
  }

  void locate(std::int64_t panel, dense::TileRows (&keys)[kSubs]) const {
    for (int sub = 0; sub < kSubs; ++sub) {
      const std::int64_t first = panel + sub * kSub;
      if (first + kSub <= item_.kv_begin || first >= item_.kv_end)
        keys[sub].from = keys[sub].to = 0;
      else
        Io::template locate<kSub>(p_, item_, first, keys[sub]);
    }
  }

  /// All strips over the packed panel, the next panel being fetched meanwhile.
  void pass_over(const dense::TileRows (&keys)[kSubs], const dense::TileRows (&next)[kSubs]) {
    Fetch fetch(p_, next, block_.rows);
    Strip strips[3];
    int at = 0;
    find_strip(0, strips[0]);
    strips[0].weights = weights_[0];
    if (strips[0].count == 0) return;
    tile::Product scores = score_product(strips[0], strips[0].first_sub, scores_[0]);
    while (!scores.done()) multiplier_.step(scores);
    multiplier_.settle();

    tile::Product values;  // of the strip before
    for (int turn = 0, stage = 0; strips[at].count > 0; at = (at + 1) % 3, turn ^= 1) {
      Strip& strip = strips[at];
      Strip& then = strips[(at + 1) % 3];
      find_strip(strip.row + strip.count, then);
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
    while (!values.done()) multiplier_.step(values);
    multiplier_.settle();
  }

  /// The strip that begins at `row`, or the next one that sees a key of the panel.
  void find_strip(std::int64_t row, Strip& strip) const {
    const std::int64_t begin = item_.kv_begin > panel_ ? item_.kv_begin : panel_;
    const std::int64_t end = item_.kv_end < panel_ + kPanel ? item_.kv_end : panel_ + kPanel;
    const bool all = item_.shared.begin <= begin && item_.shared.end >= end;
    for (; row < block_.rows; row += kRows) {
      const std::int64_t left = block_.rows - row;
      const int count = left < kRows ? static_cast<int>(left) : kRows;
      std::int64_t low = all ? begin : end;
      std::int64_t high = all ? end : begin;
      const std::int64_t last = (row + count - 1) / item_.num_heads;
      for (std::int64_t token = row / item_.num_heads; !all && token <= last; ++token) {
        const attention::KeyRange& seen = p_.visible[item_.first_token + token];
        if (seen.begin >= seen.end) continue;
        if (seen.begin < low) low = seen.begin;
        if (seen.end > high) high = seen.end;
      }
      if (low < begin) low = begin;
      if (high > end) high = end;
      if (low >= high) continue;
      strip.row = row;
      strip.count = count;
      strip.first_sub = static_cast<int>(low - panel_) / kSub;
      strip.end_key = (static_cast<int>(high - panel_) + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
      strip.end_sub = (strip.end_key + kSub - 1) / kSub;
      strip.shrinks = strip.exact = false;
      for (bool& exact : strip.exact_sub) exact = false;
      for (float& shrink : strip.shrink) shrink = 1.0f;
      return;
    }
    strip.count = 0;
  }

  [[nodiscard]] int keys_of(const Strip& strip, int sub) const {
    const int left = strip.end_key - sub * kSub;
    return left < kSub ? left : kSub;
  }

  [[nodiscard]] tile::Product score_product(const Strip& strip, int sub, float* scores) const {
    const std::int64_t q_stride = p_.scratch.q_stride;
    return {.a = block_.q + strip.row * q_stride,
            .a_stride = q_stride,
            .a_low = tile::kSide * q_stride,
            .a_step = tile::kDepth,
            .b = block_.k + sub * kSub * q_stride,
            .b_right = tile::kSide * q_stride,
            .b_step = tile::kTileNumbers,
            .b_block = kBlockKeys * q_stride,
            .c = scores,
            .c_stride = kSub,
            .c_block = kBlockKeys,
            .add = false,
            .low_rows = strip.count > tile::kSide,
            .steps = static_cast<int>(q_stride / tile::kDepth),
            .blocks = keys_of(strip, sub) / kBlockKeys};
  }

  /// o += weights · values of the strip, once its weights are known; nothing is left to do where
  /// that had to go the exact way.
  tile::Product value_product(const Strip& strip, const dense::TileRows (&keys)[kSubs]) {
    const std::int64_t o_stride = p_.scratch.o_stride;
    float* const o = block_.o + strip.row * o_stride;
    if (strip.shrinks) {
      for (int r = 0; r < strip.count; ++r)
        if (strip.shrink[r] != 1.0f) Softmax::scale(o + r * o_stride, o_stride, strip.shrink[r]);
    }
    const auto product = [&](int first, int end) {
      return tile::Product{.a = strip.weights + first * kWeightStride,
                           .a_stride = kBlockKeys,
                           .a_low = tile::kSide * kBlockKeys,
                           .a_step = kWeightStride,
                           .b = block_.v + first * kBlockKeys * o_stride,
                           .b_right = tile::kTileNumbers,
                           .b_step = kBlockKeys * o_stride,
                           .b_block = 2 * tile::kTileNumbers,
                           .c = o,
                           .c_stride = o_stride,
                           .c_block = 2 * tile::kSide,
                           .add = true,
                           .low_rows = strip.count > tile::kSide,
                           .steps = end - first,
                           .blocks = static_cast<int>(o_stride / (2 * tile::kSide))};
    };
    constexpr int kBlocks = kSub / kBlockKeys;
    const int end = strip.end_key / kBlockKeys;
    if (!strip.exact) return product(strip.first_sub * kBlocks, end);
    for (int sub = strip.first_sub; sub < strip.end_sub; ++sub) {
      if (strip.exact_sub[sub]) {
        survey(strip, keys[sub], sub);
        for (int r = 0; r < strip.count; ++r)
          Block::add_visible_values(p_, keys[sub], rules_[r],
                                    strip.weights + sub * kBlocks * kWeightStride + r * kBlockKeys,
                                    o + r * o_stride, kWeightStride);
      } else {
        const int last = (sub + 1) * kBlocks;
        tile::Product one = product(sub * kBlocks, last < end ? last : end);
        while (!one.done()) multiplier_.step(one);
        multiplier_.settle();
      }
    }
    return {};
  }

  /// Sets the rules of the strip's rows; returns whether some key of those multiplied is hidden
  /// from some row.
  bool survey(const Strip& strip, const dense::TileRows& keys, int sub) {
    std::int64_t token = strip.row / item_.num_heads;
    std::int64_t head = strip.row % item_.num_heads;
    const int end = keys_of(strip, sub);
    int last_from = keys.from;
    int first_to = end < keys.to ? end : keys.to;
    const int seen_to = first_to;
    for (int r = 0; r < strip.count; ++r) {
      rules_[r] = common_;
      Io::set_rule(p_, item_, token, head, panel_ + sub * kSub, keys.from, keys.to, rules_[r]);
      if (rules_[r].from > last_from) last_from = rules_[r].from;
      if (rules_[r].to < first_to) first_to = rules_[r].to;
      if (++head == item_.num_heads) {
        head = 0;
        ++token;
      }
    }
    return last_from > keys.from || first_to < seen_to || common_.bits != nullptr;
  }

  /// Lines of the next panel, asked for evenly over the passes over this one.
  class Fetch {
   public:
    Fetch(const dense::Params& p, const dense::TileRows (&next)[kSubs], std::int64_t rows)
        : next_(next),
          k_bytes_(p.head_dim_qk * kBytes),
          v_bytes_(p.head_dim_vo * kBytes),
          turns_((rows + 1) / 2 * kSubs) {}

    /// Once for every two rows and kSub keys.
    void turn() {
      for (due_ += kPanel; due_ >= turns_ && key_ < kPanel; due_ -= turns_, ++key_) {
        const dense::TileRows& keys = next_[key_ / kSub];
        const int i = key_ % kSub;
        if (i < keys.from || i >= keys.to) continue;
        Io::prefetch_far(keys.k[i], k_bytes_);
        // Latent values are part of their keys.
        if (keys.v[i] != keys.k[i]) Io::prefetch_far(keys.v[i], v_bytes_);
      }
    }

   private:
    const dense::TileRows (&next_)[kSubs];
    std::int64_t k_bytes_;
    std::int64_t v_bytes_;
    std::int64_t turns_;
    std::int64_t due_ = 0;
    int key_ = 0;
  };

  /// Weights of kSub keys from their scores, and beside it the scores of the next and `values` as
  /// far as its block `values_end`.
  void weigh(Strip& strip, const dense::TileRows& keys, int sub, float* scores, tile::Product& next,
             tile::Product& values, int values_end, Fetch& fetch) {
    const std::int64_t first = panel_ + sub * kSub;
    bool whole = simple_ && first >= item_.shared.begin && first + kSub <= item_.shared.end &&
                 keys.from == 0 && keys.to == kSub;
    if (!whole) {
      const bool hidden = survey(strip, keys, sub);
      whole =
          simple_ && !hidden && keys.from == 0 && keys.to == kSub && keys_of(strip, sub) == kSub;
      if (hidden && values_[sub] == Values::unchecked)
        values_[sub] = Block::all_finite(block_.v + sub * kSub * p_.scratch.o_stride,
                                         kSub * p_.scratch.o_stride)
                           ? Values::finite
                           : Values::not_finite;
      if (hidden && values_[sub] == Values::not_finite) strip.exact = strip.exact_sub[sub] = true;
    }
    const int span = keys_of(strip, sub);
    Number* const weights = strip.weights + sub * (kSub / kBlockKeys) * kWeightStride;
    const int turns = (strip.count + 1) / 2;
    const int value_blocks = values_end - values.block;
    const int steps = next.blocks * next.steps + value_blocks * values.steps;
    for (int turn = 0, done = 0; turn < turns; ++turn) {
      const int row = 2 * turn;
      if (whole && row + 1 < strip.count) {
        // Two rows in one stretch of code: either alone is too short a chain to fill the units.
        simd::unroll<2>([&](auto i) { weigh_whole_row(strip, row + i, sub, scores, weights); });
      } else {
        for (int r = row; r < row + 2 && r < strip.count; ++r) {
          if (whole)
            weigh_whole_row(strip, r, sub, scores, weights);
          else
            weigh_row(strip, r, sub, span, scores, weights);
        }
      }
      for (const int due = steps * (turn + 1) / turns; done < due; ++done)
        multiplier_.step(next.done() ? values : next);
      fetch.turn();
    }
    if (value_blocks == 0) multiplier_.settle();  // the scores are read next
  }

  [[gnu::always_inline]] void weigh_whole_row(Strip& strip, int r, int sub, const float* scores,
                                              Number* weights) {
    const std::int64_t row = strip.row + r;
    const float shrink = Softmax::template update_whole<kSub>(
        scores + r * kSub, factor_, block_.maximum[row], block_.sum + row * kLanes,
        weights + r * kBlockKeys, kWeightStride);
    if (shrink != 1.0f) shrink_row(strip, r, sub, shrink);
  }

  void weigh_row(Strip& strip, int r, int sub, int span, float* scores, Number* weights) {
    const std::int64_t row = strip.row + r;
    const float shrink =
        Softmax::update(scores + r * kSub, span, rules_[r], block_.maximum[row],
                        block_.sum + row * kLanes, weights + r * kBlockKeys, kWeightStride);
    if (shrink != 1.0f) shrink_row(strip, r, sub, shrink);
  }

  /// The maximum of a row has moved at `sub`: its weights of the panel's earlier keys are scaled at
  /// once, o before the panel's values are added. What was at most 2^kSlack becomes less than 1, so
  /// that rounding twice costs nothing that shows.
  [[gnu::noinline]] void shrink_row(Strip& strip, int r, int sub, float factor) {
    strip.shrinks = true;
    strip.shrink[r] *= factor;
    const F times = V::set(factor);
    constexpr int kBlocks = kSub / kBlockKeys;
    for (int block = strip.first_sub * kBlocks; block < sub * kBlocks; ++block) {
      Number* const weights = strip.weights + block * kWeightStride + r * kBlockKeys;
      for (int i = 0; i < kBlockKeys; i += Softmax::kStep) {
        F x[kPair];
        simd::unroll<kPair>([&](auto h) {
          x[h] = V::mul(V::template load_as<DType::bf16>(weights + i + h * kLanes), times);
        });
        Unit::store(weights + i, Unit::round(x));
      }
    }
  }

  void pack_keys(const dense::TileRows& keys, Number* out) const {
    const std::int64_t q_stride = p_.scratch.q_stride;
    for (int key = 0; key < kSub; key += kLanes) {
      Number* const group =
          out + key / tile::kSide * tile::kSide * q_stride + key % tile::kSide * kPair;
      // Tiles read whole operands: dims beyond the last are packed as zeros for them.
      for (std::int64_t d = 0; d < q_stride; d += Unit::kNumbers) {
        const std::int64_t left = p_.head_dim_qk - d;
        Operand m[kLanes];
        simd::unroll<kLanes>([&](auto i) {
          const char* const row = keys.k[key + i];
          if (row == nullptr || left <= 0)
            m[i] = Unit::zero();
          else if (left >= Unit::kNumbers)
            m[i] = Unit::template load_as<T>(row + d * kBytes);
          else
            m[i] = Unit::template load_as_n<T>(row + d * kBytes, static_cast<int>(left));
        });
        Unit::transpose(m);
        simd::unroll<kLanes>([&](auto i) {
          const std::int64_t pair = d / kPair + i;
          Unit::store(group + pair * tile::kSide * kPair, m[i]);
        });
      }
    }
  }

  void pack_values(const dense::TileRows& keys, Number* out) const {
    const std::int64_t o_stride = p_.scratch.o_stride;
    for (int key = 0; key < kSub; key += kPair) {
      Number* const row_of_tile = out + key / tile::kDepth * tile::kDepth * o_stride +
                                  key % tile::kDepth / kPair * tile::kSide * kPair;
      for (std::int64_t d = 0; d < o_stride; d += Unit::kNumbers) {
        const std::int64_t left = p_.head_dim_vo - d;
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
        simd::unroll<kPair>([&](auto i) {
          const std::int64_t dim = d + i * kLanes;
          Unit::store(
              row_of_tile + dim / tile::kSide * tile::kTileNumbers + dim % tile::kSide * kPair,
              columns[i]);
        });
      }
    }
  }

  const dense::Params& p_;
  const dense::Item& item_;
  const Block block_;
  const softmax::RowRule common_;
  const bool simple_;
  const float factor_;
  std::int64_t panel_ = 0;
  dense::TileRows keys_[2][kSubs];
  Values values_[kSubs] = {};
  softmax::RowRule rules_[kRows];
  Multiplier multiplier_;
  alignas(64) float scores_[2][kRows * kSub];
  alignas(64) Number weights_[2][kPanel * kRows];
};

}  // namespace attune::kernels::ragged_prefill
