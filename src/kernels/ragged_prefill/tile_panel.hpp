// What both bodies on tile registers do with a panel of keys besides multiplying (layer kernels):
// where it lies, which of its keys a strip of rows sees, weights from scores, packed values.
//
//   packed V   [kPanel / 32 keys][o_stride / 16][16 pairs of keys][16 dims][2]
//   weights    [kPanel / 32 keys][kRows rows][32 keys]
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/ragged_prefill/block.hpp"
#include "kernels/simd/unroll.hpp"
#include "kernels/softmax/online_softmax.hpp"
#include "kernels/tile/columns.hpp"
#include "kernels/tile/product.hpp"

namespace attune::kernels::ragged_prefill {

/// kSubCount: keys of a panel, in subs.
template <class Unit, DType T, int kSubCount>
class TilePanel {
 protected:
  using V = typename Unit::V;
  using F = typename Unit::F;
  using Number = typename Unit::Number;
  using Operand = typename Unit::Operand;
  using Io = dense::RowIo<Unit, T>;
  using Softmax = softmax::OnlineSoftmax<Unit>;
  using Block = BlockOf<Unit, T>;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPair = Unit::kPair;
  static constexpr int kRows = Unit::kStripRows;
  static constexpr int kSub = dense::kKeyTile;  ///< keys weighed at a time
  static constexpr int kSubs = kSubCount;
  static constexpr int kPanel = kSub * kSubs;
  static constexpr int kBlockKeys = Softmax::kWeightBlock;
  static constexpr std::int64_t kWeightStride = kRows * kBlockKeys;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;
  static_assert(kRows == 2 * tile::kSide && kBlockKeys == tile::kDepth && kPair == 2);

  /// Up to 32 rows, and the keys of the panel that any of them sees.
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

  TilePanel(const dense::Params& p, const dense::Item& item, void* scratch,
            bool sums_in_place = false)
      : p_(p),
        item_(item),
        block_(Block::begin(p, item, scratch, sums_in_place)),
        common_(Io::common_rule(p, item, item.kv_head)),
        simple_(Block::only_scales(p, common_)),
        factor_(Softmax::log2_factor(common_)),
        fresh_(item.kv_begin < item.kv_end && simple_ && item.shared.begin <= item.kv_begin &&
               item.shared.end >= item.kv_end) {
    if (!fresh_) block_.clear(p);
  }

  /// Whether columns are packed from queries where the caller left them.
  [[nodiscard]] bool reads_queries() const { return p_.head_dim_qk == p_.scratch.q_stride; }

  /// `count` rows of queries from `row` on become the columns of B, where the rows would lie in the
  /// thread's own memory; zeros beyond the block's last.
  void pack_rows(std::int64_t row, int count) const {
    const std::int64_t bytes = p_.scratch.q_stride * static_cast<std::int64_t>(sizeof(Number));
    const std::int64_t valid = block_.rows - row < count ? block_.rows - row : count;
    Number* const q = block_.q + row * p_.scratch.q_stride;
    if (reads_queries()) {
      ask_for_queries(row + count, count);
      tile::pack_columns<Unit>([&](int i) { return block_.query(p_, item_, row + i); }, bytes,
                               count, valid, q);
      return;
    }
    tile::pack_columns<Unit>([&](int i) { return reinterpret_cast<const char*>(q) + i * bytes; },
                             bytes, count, valid, block_.v);
    std::memcpy(q, block_.v, static_cast<std::size_t>(count * bytes));
  }

  void ask_for_queries(std::int64_t row, int count) const {
    for (const std::int64_t end = row + count; row < end && row < block_.rows; ++row)
      Io::prefetch(block_.query(p_, item_, row),
                   p_.head_dim_qk * static_cast<std::int64_t>(sizeof(Number)));
  }

  void enter_panel(std::int64_t panel) {
    panel_ = panel;
    for (Values& values : values_) values = Values::unchecked;
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

  /// The strip of at most `most` rows that begins at `row`, or the next one before `end` that sees
  /// a key of the panel.
  void find_strip(std::int64_t row, std::int64_t end_row, int most, Strip& strip) const {
    const std::int64_t begin = item_.kv_begin > panel_ ? item_.kv_begin : panel_;
    const std::int64_t end = item_.kv_end < panel_ + kPanel ? item_.kv_end : panel_ + kPanel;
    const bool all = item_.shared.begin <= begin && item_.shared.end >= end;
    for (; row < end_row; row += most) {
      const std::int64_t left = end_row - row;
      const int count = left < most ? static_cast<int>(left) : most;
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

  /// Before the sub's scores are weighed: whether they are under a rule that only scales, all
  /// visible. Otherwise the rows' rules are set, and values that must not be multiplied are noted.
  bool inspect(Strip& strip, const dense::TileRows& keys, int sub) {
    return inspect(strip, keys, sub, [&] {
      return Block::all_finite(block_.v + sub * kSub * p_.scratch.o_stride,
                               kSub * p_.scratch.o_stride);
    });
  }

  /// `finite()`: whether the sub's values, wherever they are, are.
  template <class Finite>
  bool inspect(Strip& strip, const dense::TileRows& keys, int sub, Finite&& finite) {
    const std::int64_t first = panel_ + sub * kSub;
    if (simple_ && first >= item_.shared.begin && first + kSub <= item_.shared.end &&
        keys.from == 0 && keys.to == kSub)
      return true;
    const bool hidden = survey(strip, keys, sub);
    if (hidden && values_[sub] == Values::unchecked)
      values_[sub] = finite() ? Values::finite : Values::not_finite;
    if (hidden && values_[sub] == Values::not_finite) strip.exact = strip.exact_sub[sub] = true;
    return simple_ && !hidden && keys.from == 0 && keys.to == kSub && keys_of(strip, sub) == kSub;
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

  /// o of the strip's rows, as it was before the panel, brought to their new maxima.
  void shrink_outputs(const Strip& strip) const {
    if (!strip.shrinks) return;
    const std::int64_t o_stride = p_.scratch.o_stride;
    for (int r = 0; r < strip.count; ++r)
      if (strip.shrink[r] != 1.0f)
        Softmax::scale(block_.o + (strip.row + r) * o_stride, o_stride, strip.shrink[r]);
  }

  /// The values of a sub that holds hidden ones which are not finite, key by key.
  void add_exactly(const Strip& strip, const dense::TileRows& keys, int sub) {
    survey(strip, keys, sub);
    constexpr int kBlocks = kSub / kBlockKeys;
    for (int r = 0; r < strip.count; ++r)
      Block::add_visible_values(p_, keys, rules_[r],
                                strip.weights + sub * kBlocks * kWeightStride + r * kBlockKeys,
                                block_.o + (strip.row + r) * p_.scratch.o_stride, kWeightStride);
  }

  /// An operand of a key's numbers, as they are multiplied; zeros from the `left`-th on.
  template <tile::Cells kCells>
  static Operand cells_of(const char* at, std::int64_t left) {
    if constexpr (kCells == tile::Cells::int8) {
      if (left >= 2 * Unit::kNumbers) return V::load_bytes(at);
      alignas(64) char bytes[2 * Unit::kNumbers] = {};
      std::memcpy(bytes, at, static_cast<std::size_t>(left));
      return V::load_bytes(bytes);
    } else {
      if (left >= Unit::kNumbers) return Unit::template load_as<T>(at);
      return Unit::template load_as_n<T>(at, static_cast<int>(left));
    }
  }

  void pack_values(const dense::TileRows& keys, Number* out, int first = 0, int end = kSub) const {
    const std::int64_t o_stride = p_.scratch.o_stride;
    for (int key = first; key < end; key += kPair) {
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

  enum class Values : std::uint8_t { unchecked, finite, not_finite };

  const dense::Params& p_;
  const dense::Item& item_;
  const Block block_;
  const softmax::RowRule common_;
  const bool simple_;
  const float factor_;
  bool fresh_;  ///< nothing is summed yet, o is not even cleared: every row sees the first keys
  std::int64_t panel_ = 0;
  Values values_[kSubs] = {};
  softmax::RowRule rules_[kRows];
};

}  // namespace attune::kernels::ragged_prefill
