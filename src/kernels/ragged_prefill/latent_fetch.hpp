// Latent keys of a panel and of the next one, asked for evenly over the products of this one (layer
// kernels). They are long and read once, so it matters how memory is asked: what fetches ahead by
// itself in a core with tiles does so within a page of 4 KB, so lines of four keys a quarter of a
// tile apart are asked for in turn (paged_decode/fetch.hpp). Verbs as in panel_fetch.hpp; a value
// is part of its key.
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::ragged_prefill {

template <class Io, int kSubs, std::int64_t kBytes>
class LatentFetch {
 public:
  /// `asked`: keys asked for, counted from this panel's first, four by four.
  LatentFetch(const dense::Params& p, const dense::TileRows (&now)[kSubs],
              const dense::TileRows (&next)[kSubs], int asked)
      : now_(now),
        next_(next),
        lines_((p.head_dim_qk * kBytes + kLine - 1) / kLine),
        four_(asked / kFour) {
    find();
  }

  /// The rest is shared out over so many turns.
  void spread(std::int64_t turns) {
    turns_ = turns;
    left_ = (2 * kFours - four_) * lines_;
  }
  void turn() {
    for (due_ += left_; due_ >= turns_ && four_ < 2 * kFours; due_ -= turns_) ask();
  }
  [[nodiscard]] int key() const { return four_ * kFour; }

  /// The first `count` keys of an item in that order, before anything else is done: nobody has
  /// asked for them. Queries and sums are made ready meanwhile.
  static void ask_first(const dense::Params& p, const dense::Item& item, int count) {
    constexpr int kSub = dense::kKeyTile;
    const std::int64_t panel = item.kv_begin / (kSubs * kSub) * (kSubs * kSub);
    for (std::int64_t first = panel; count > 0 && first < item.kv_end; first += kSub) {
      const int fours = count < kSub ? count / kFour : kFoursOfTile;
      count -= kSub;
      if (first + kSub <= item.kv_begin) continue;
      dense::TileRows keys;
      Io::template locate<kSub>(p, item, first, keys);
      for (int i = 0; i < kSub; ++i) {
        const int key = i % kFour * kFoursOfTile + i / kFour;
        if (i < fours * kFour && key >= keys.from && key < keys.to)
          Io::prefetch_far(keys.k[key], p.head_dim_qk * kBytes);
      }
    }
  }

 private:
  static constexpr int kFour = 4;
  static constexpr int kFoursOfTile = dense::kKeyTile / kFour;
  static constexpr int kFours = kSubs * kFoursOfTile;
  static constexpr std::int64_t kLine = 64;

  [[nodiscard]] const dense::TileRows& tile() const {
    return (four_ < kFours ? now_ : next_)[four_ % kFours / kFoursOfTile];
  }

  /// Where the four at the cursor lie; another key stands for one that is not there, and tiles
  /// without keys are passed over.
  void find() {
    while (four_ < 2 * kFours && tile().from == tile().to) four_ += kFoursOfTile;
    if (four_ >= 2 * kFours) return;
    const dense::TileRows& keys = tile();
    simd::unroll<kFour>([&](auto i) {
      const int key = i * kFoursOfTile + four_ % kFoursOfTile;
      at_[i] = keys.k[key >= keys.from && key < keys.to ? key : keys.from];
    });
    line_ = lines_;
  }

  /// Asks for a line of each.
  void ask() {
    simd::unroll<kFour>([&](auto i) {
      Io::prefetch_far(at_[i], kLine);
      at_[i] += kLine;
    });
    if (--line_ > 0) return;
    ++four_;
    find();
  }

  const dense::TileRows (&now_)[kSubs];
  const dense::TileRows (&next_)[kSubs];
  std::int64_t lines_;          ///< of a key
  const char* at_[kFour] = {};  ///< the next lines
  std::int64_t line_ = 0;       ///< so many are left of each
  std::int64_t turns_ = 1;
  std::int64_t left_ = 0;  ///< lines of a four
  std::int64_t due_ = 0;
  int four_;
};

}  // namespace attune::kernels::ragged_prefill
