// Few query rows on tile registers: latent decode of 16 heads, draft tokens, short prompts (layer
// kernels).
//
// Packing a key costs more than multiplying it by a handful of rows. So keys are the rows of A
// where they lie in their pages, and queries, packed once, the columns of B: scores come out keys
// by rows and are turned in registers. Values are packed, two keys a cell, but for latent ones,
// which are multiplied where they lie too. Tiles are as large as the block of rows needs, and
// zeroed once multiplied (tile/product.hpp says why).
//
// Panels are small, so that keys are in a cache when they are met; those of the next panel are
// asked for between the products. Where a row's bits must not depend on its neighbours, panels are
// tile_body.hpp's: a row meets its keys in the same panels, subs and order, to the same bits,
// through whichever of both it goes.
//
//   packed queries   by strip: [dims of whole steps][16 cells of dims][strip's columns][cell]
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/ragged_prefill/latent_fetch.hpp"
#include "kernels/ragged_prefill/panel_fetch.hpp"
#include "kernels/ragged_prefill/tile_panel.hpp"
#include "kernels/ragged_prefill/values_in_place.hpp"
#include "kernels/tile/cells.hpp"
#include "kernels/tile/columns.hpp"
#include "kernels/tile/digits.hpp"

namespace attune::kernels::ragged_prefill {

/// kLatent: values are the first numbers of their keys and are multiplied in place too
/// (values_in_place.hpp).
template <class Unit, DType T, tile::Cells kCells, int kSubCount, bool kLatent = false>
class FewRows : TilePanel<Unit, T, kSubCount> {
  using Panel = TilePanel<Unit, T, kSubCount>;
  using Panel::block_;
  using Panel::fresh_;
  using Panel::item_;
  using Panel::kBlockKeys;
  using Panel::kBytes;
  using Panel::kLanes;
  using Panel::kPanel;
  using Panel::kRows;
  using Panel::kSub;
  using Panel::kSubs;
  using Panel::kWeightStride;
  using Panel::p_;
  using Panel::panel_;
  using typename Panel::F;
  using typename Panel::Number;
  using typename Panel::Operand;
  using typename Panel::Strip;
  using typename Panel::V;
  using Digits = tile::Digits<Unit>;
  using Fetch = std::conditional_t<kLatent, LatentFetch<typename Panel::Io, kSubs, kBytes>,
                                   PanelFetch<typename Panel::Io, kSubs, kBytes>>;
  using Tiles = typename Unit::Tiles;
  static constexpr bool kDigits = kCells == tile::Cells::int8;
  static constexpr int kColumns = kDigits ? 2 : 1;  ///< of B, for a row
  static constexpr int kSide = tile::kSide;
  static constexpr int kStripRows = kSide / kColumns;
  static constexpr int kGroups = kPanel / kSide;
  static constexpr std::int64_t kLine = tile::kLine;
  /// Whether stored keys are what is multiplied.
  static constexpr bool kInPlace = kDigits || T == DType::bf16;
  using InPlace = ValuesInPlace<Unit>;
  static_assert(!kLatent || (kInPlace && !kDigits && kSubs == 1));

 public:
  static constexpr int kPackedKeys = kPanel;
  static constexpr int kStepDims = kDigits ? Digits::kStep : tile::kDepth;
  static constexpr std::int64_t kMostRows = 32;  ///< more meet packed keys faster
  /// Asked for before anything else is done.
  static constexpr int kFirstKeys = 32;

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    Fetch::ask_first(p, item, kFirstKeys);
    FewRows(p, item, scratch).run();
  }
  /// Whether values can be multiplied as part of their keys.
  static bool are_latent(const dense::Params& p) {
    constexpr int kChecked = 8 * kLanes;  // that all_finite takes at a time
    return p.kv.v == p.kv.k && p.head_dim_vo % kChecked == 0 && p.head_dim_vo % kBlockKeys == 0;
  }

 private:
  /// 16 keys, evenly spaced.
  struct Group {
    const char* at = nullptr;  ///< nullptr: none of them is there
    std::int64_t stride = 0;   ///< bytes
  };

  FewRows(const dense::Params& p, const dense::Item& item, void* scratch)
      : Panel(p, item, scratch, Panel::Block::sums_fit(p, item, 1)),
        strips_((block_.rows + kStripRows - 1) / kStripRows),
        strip_rows_(static_cast<int>((block_.rows + strips_ - 1) / strips_)),
        steps_(static_cast<int>(p.scratch.q_stride / kStepDims)) {
    if (kDigits || !this->reads_queries())
      block_.load_queries(p, item);
    else
      this->ask_for_queries(0, strip_rows_);
  }

  void run() {
    int now = 0;
    std::int64_t panel = item_.kv_begin / kPanel * kPanel;
    if (panel < item_.kv_end) this->locate(panel, keys_[0]);
    pack_queries();
    int asked = kFirstKeys;
    for (; panel < item_.kv_end; panel += kPanel, now ^= 1) {
      this->locate(panel + kPanel, keys_[now ^ 1]);
      Fetch fetch(p_, keys_[now], keys_[now ^ 1], asked);
      constexpr int kValueTurns = kPanel / (kLatent ? kSide : kBlockKeys);
      fetch.spread(strips_ *
                   (kSubs * 2 * steps_ + p_.scratch.o_stride / (2 * kSide) * kValueTurns));
      this->enter_panel(panel);
      pass_over(keys_[now], fetch);
      fresh_ = false;
      asked = fetch.key() > kPanel ? fetch.key() - kPanel : 0;
    }
    tiles_.release();
    for (std::int64_t row = 0; kLatent && row < block_.rows; ++row)
      InPlace::join(o_of(row), p_.head_dim_vo);
    block_.finish(p_, item_);
  }

  [[nodiscard]] float* o_of(std::int64_t row) const { return block_.o + row * p_.scratch.o_stride; }

  /// Each strip's queries become columns, in place.
  void pack_queries() {
    [[maybe_unused]] const std::int64_t q_stride = p_.scratch.q_stride;
    [[maybe_unused]] char* const rows = reinterpret_cast<char*>(block_.k);
    [[maybe_unused]] const std::int64_t row_bytes = q_stride;
    for (std::int64_t row = 0; row < block_.rows; row += strip_rows_) {
      const std::int64_t left = block_.rows - row;
      const int count = left < strip_rows_ ? static_cast<int>(left) : strip_rows_;
      if constexpr (kDigits) {
        Number* const q = block_.q + row * q_stride;
        for (int r = 0; r < count; ++r)
          digit_value_[row + r] = Digits::split(q + r * q_stride, q_stride, rows + r * row_bytes,
                                                rows + (count + r) * row_bytes);
        tile::pack_columns<Unit>(rows, row_bytes, count * kColumns, block_.v);
        std::memcpy(q, block_.v, static_cast<std::size_t>(count * q_stride * 2));
      } else {
        this->pack_rows(row, count);
      }
    }
  }

  /// All strips over the panel.
  void pass_over(const dense::TileRows (&keys)[kSubs], Fetch& fetch) {
    for (int sub = 0; sub < kSubs; ++sub) {
      packed_[sub] = kLatent || keys[sub].from == keys[sub].to;
      if (keys[sub].from < keys[sub].to) find_keys(keys[sub], sub);
    }
    Strip strip;
    strip.weights = weights_;
    this->find_strip(0, block_.rows, strip_rows_, strip);
    while (strip.count > 0) {
      shape_tiles(strip.count);
      for (int sub = strip.first_sub; sub < strip.end_sub; ++sub) {
        score(strip, keys[sub], sub, fetch);
        packed_[sub] = true;
        const bool whole = inspect_keys(strip, keys[sub], sub);
        const int span = this->keys_of(strip, sub);
        Number* const weights = strip.weights + sub * (kSub / kBlockKeys) * kWeightStride;
        for (int r = 0; r < strip.count; ++r) {
          if (whole)
            this->weigh_whole_row(strip, r, sub, scores_, weights);
          else
            this->weigh_row(strip, r, sub, span, scores_, weights);
          for (int block = 0; kLatent && block < strip.end_key / kBlockKeys; ++block)
            InPlace::spread(weights + block * kWeightStride + r * kBlockKeys, kBlockKeys, r,
                            spread_ + block * (kBlockKeys / kSide) * InPlace::kGroupNumbers);
        }
      }
      add_values(strip, keys, fetch);
      this->find_strip(strip.row + strip.count, block_.rows, strip_rows_, strip);
    }
  }

  bool inspect_keys(Strip& strip, const dense::TileRows& keys, int sub) {
    if constexpr (!kLatent) return this->inspect(strip, keys, sub);
    return this->inspect(strip, keys, sub, [&] {
      for (const Group& group : groups_)
        for (int i = 0; group.at != nullptr && i < kSide; ++i)
          if (!Panel::Block::all_finite(
                  reinterpret_cast<const Number*>(group.at + i * group.stride), p_.head_dim_vo))
            return false;
      return true;
    });
  }

  /// Where tiles find the sub's keys: in their page, or copied to where they are evenly spaced.
  void find_keys(const dense::TileRows& keys, int sub) {
    const std::int64_t copy_bytes = p_.scratch.q_stride * (kDigits ? 1 : 2);
    for (int g = 0; g < kSub / kSide; ++g) {
      const int first = g * kSide;
      Group& group = groups_[sub * (kSub / kSide) + g];
      if (first + kSide <= keys.from || first >= keys.to) {
        group = {};
        continue;
      }
      const bool all = first >= keys.from && first + kSide <= keys.to;
      if (kInPlace && all && p_.head_dim_qk == p_.scratch.q_stride) {
        const std::int64_t stride = keys.k[first + 1] - keys.k[first];
        bool even = true;
        for (int i = 2; i < kSide; ++i)
          even = even && keys.k[first + i] - keys.k[first + i - 1] == stride;
        if (even) {
          group = {keys.k[first], stride};
          continue;
        }
      }
      char* const copy = reinterpret_cast<char*>(block_.k) + (sub * kSub + first) * copy_bytes;
      for (int i = 0; i < kSide; ++i) copy_key(keys.k[first + i], copy + i * copy_bytes);
      group = {copy, copy_bytes};
    }
  }

  void copy_key(const char* row, char* to) const {
    constexpr std::int64_t kOperandDims = Unit::kNumbers * (kDigits ? 2 : 1);
    for (std::int64_t d = 0; d < p_.scratch.q_stride; d += kOperandDims) {
      const std::int64_t left = p_.head_dim_qk - d;
      Unit::store(reinterpret_cast<Number*>(to) + d / (kDigits ? 2 : 1),
                  row == nullptr || left <= 0
                      ? Unit::zero()
                      : Panel::template cells_of<kCells>(row + d * kBytes, left));
    }
  }

  /// Tiles for strips of `rows` rows: 0, 1 scores of 16 keys, 2 queries; 3, 7 keys, and then
  /// values; 4, 5 o, 6 weights.
  void shape_tiles(int rows) {
    if (rows == shaped_rows_) return;
    shaped_rows_ = rows;
    const int column_bytes = rows * kColumns * tile::kCellBytes;
    tile::Shapes shapes;
    for (const int t : {0, 1, 2}) shapes.tile[t].bytes = column_bytes;
    for (const int t : {4, 5, 6}) shapes.tile[t].rows = rows;
    tiles_.configure(shapes);
  }

  /// Scores of the strip's rows with the keys of a sub, [rows][kSub]. The first strip also packs
  /// their values, of latent keys while they are in the first cache.
  void score(const Strip& strip, const dense::TileRows& keys, int sub, Fetch& fetch) {
    const int columns = strip.count * kColumns;
    const std::int64_t step_numbers = kSide * columns * Panel::kPair;
    const Number* const q = block_.q + strip.row * p_.scratch.q_stride;
    const Group* const groups = groups_ + sub * (kSub / kSide);
    for (int g = 0; g < kSub / kSide; g += 2) {
      const Group& left = groups[g].at != nullptr ? groups[g] : groups[g + 1];
      const Group& right = groups[g + 1].at != nullptr ? groups[g + 1] : left;
      if (right.at == nullptr) {
        if (!packed_[sub]) pack(keys, sub, g);
        continue;
      }
      tiles_.template zero<0>();
      tiles_.template zero<1>();
      for (int step = 0; step < steps_; ++step) {
        tiles_.template load<2>(q + step * step_numbers, columns * tile::kCellBytes);
        tiles_.template load<3>(left.at + step * kLine, left.stride);
        tiles_.template multiply_add<kCells, 0, 3, 2>();
        tiles_.template zero<3>();
        tiles_.template load<7>(right.at + step * kLine, right.stride);
        tiles_.template multiply_add<kCells, 1, 7, 2>();
        tiles_.template zero<2>();
        tiles_.template zero<7>();
        fetch.turn();
      }
      tiles_.template store<0>(turned_ + g * kSide * kSide, kLine);
      tiles_.template store<1>(turned_ + (g + 1) * kSide * kSide, kLine);
      tiles_.template zero<0>();
      tiles_.template zero<1>();
      if (!packed_[sub]) pack(keys, sub, g);
    }
    for (int key = 0; key < kSub; key += kLanes) {
      for (int column = 0; column < columns; column += kLanes) {
        F m[kLanes];
        simd::unroll<kLanes>([&](auto i) { m[i] = V::load(turned_ + (key + i) * kSide + column); });
        V::transpose(m);
        simd::unroll<kLanes>([&](auto i) {
          if (column + i < columns) V::store(scores_ + (column + i) * kSub + key, m[i]);
        });
      }
    }
    if constexpr (kDigits) {
      for (int r = 0; r < strip.count; ++r)
        Digits::template join<kSub>(scores_ + r * kSub, scores_ + (strip.count + r) * kSub,
                                    digit_value_[strip.row + r]);
    }
  }

  /// The values of two groups of keys.
  void pack(const dense::TileRows& keys, int sub, int group) const {
    this->pack_values(keys, block_.v + sub * kSub * p_.scratch.o_stride, group * kSide,
                      (group + 2) * kSide);
  }

  void add_values(const Strip& strip, const dense::TileRows (&keys)[kSubs], Fetch& fetch) {
    this->shrink_outputs(strip);
    if constexpr (kLatent) {
      if (!strip.exact) return add_groups(strip, strip.end_key / kSide, fetch);
      for (int r = 0; r < strip.count; ++r) InPlace::join(o_of(strip.row + r), p_.head_dim_vo);
      this->add_exactly(strip, keys[0], 0);
      for (int r = 0; r < strip.count; ++r) InPlace::split(o_of(strip.row + r), p_.head_dim_vo);
      return;
    }
    constexpr int kBlocks = kSub / kBlockKeys;
    const int end = strip.end_key / kBlockKeys;
    if (!strip.exact) return add_blocks(strip, strip.first_sub * kBlocks, end, fetch);
    for (int sub = strip.first_sub; sub < strip.end_sub; ++sub) {
      const int last = (sub + 1) * kBlocks;
      if (strip.exact_sub[sub])
        this->add_exactly(strip, keys[sub], sub);
      else
        add_blocks(strip, sub * kBlocks, last < end ? last : end, fetch);
    }
  }

  void load_sums(const float* o, std::int64_t stride) {
    if (fresh_) {
      tiles_.template zero<4>();
      tiles_.template zero<5>();
    } else {
      tiles_.template load<4>(o, stride);
      tiles_.template load<5>(o + kSide, stride);
    }
  }

  /// o += weights · values of the blocks first … end-1.
  void add_blocks(const Strip& strip, int first, int end, Fetch& fetch) {
    const std::int64_t o_stride = p_.scratch.o_stride;
    for (std::int64_t dim = 0; dim < o_stride; dim += 2 * kSide) {
      float* const o = block_.o + strip.row * o_stride + dim;
      load_sums(o, o_stride * 4);
      for (int block = first; block < end; ++block) {
        const Number* const values =
            block_.v + block * kBlockKeys * o_stride + dim / kSide * tile::kTileNumbers;
        tiles_.template load<6>(strip.weights + block * kWeightStride, kLine);
        tiles_.template load<3>(values, kLine);
        tiles_.template multiply_add<tile::Cells::bf16, 4, 6, 3>();
        tiles_.template zero<3>();
        tiles_.template load<7>(values + tile::kTileNumbers, kLine);
        tiles_.template multiply_add<tile::Cells::bf16, 5, 6, 7>();
        tiles_.template zero<6>();
        tiles_.template zero<7>();
        fetch.turn();
      }
      tiles_.template store<4>(o, o_stride * 4);
      tiles_.template store<5>(o + kSide, o_stride * 4);
      tiles_.template zero<4>();
      tiles_.template zero<5>();
    }
  }

  /// The same of the first `end` groups of 16 keys, whose values lie in their keys.
  void add_groups(const Strip& strip, int end, Fetch& fetch) {
    const std::int64_t o_stride = p_.scratch.o_stride;
    for (std::int64_t dim = 0; dim < p_.head_dim_vo; dim += 2 * kSide) {
      float* const o = o_of(strip.row) + dim;
      load_sums(o, o_stride * 4);
      for (int g = 0; g < end; ++g) {
        fetch.turn();
        if (groups_[g].at == nullptr) continue;
        const Number* const weights = spread_ + g * InPlace::kGroupNumbers;
        tiles_.template load<3>(groups_[g].at + dim * kBytes, groups_[g].stride);
        tiles_.template load<6>(weights, kLine);
        tiles_.template multiply_add<tile::Cells::bf16, 4, 6, 3>();
        tiles_.template zero<6>();
        tiles_.template load<6>(weights + tile::kTileNumbers, kLine);
        tiles_.template multiply_add<tile::Cells::bf16, 5, 6, 3>();
        tiles_.template zero<6>();
        tiles_.template zero<3>();
      }
      tiles_.template store<4>(o, o_stride * 4);
      tiles_.template store<5>(o + kSide, o_stride * 4);
      tiles_.template zero<4>();
      tiles_.template zero<5>();
    }
  }

  const std::int64_t strips_;
  const int strip_rows_;
  const int steps_;
  Tiles tiles_;
  int shaped_rows_ = 0;
  bool packed_[kSubs] = {};  ///< values of the panel's subs
  Group groups_[kGroups];
  dense::TileRows keys_[2][kSubs];
  float digit_value_[kDigits ? kMostRows : 1];  ///< of a row's queries
  alignas(64) float turned_[kSub * kSide];      ///< scores, [keys][columns]
  alignas(64) float scores_[kSide * kSub];
  alignas(64) Number weights_[kPanel * kRows];
  alignas(64) Number spread_[kLatent ? kGroups * InPlace::kGroupNumbers : 1];
};

}  // namespace attune::kernels::ragged_prefill
