// Keys of a panel and of the next one, asked for evenly over the products of this one (layer
// kernels).
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"

namespace attune::kernels::ragged_prefill {

/// A row at a time: finding the next line took longer than asking for it.
template <class Io, int kSubs, std::int64_t kBytes>
class PanelFetch {
 public:
  /// `key`: the first to be asked for, counted from this panel's first.
  PanelFetch(const dense::Params& p, const dense::TileRows (&now)[kSubs],
             const dense::TileRows (&next)[kSubs], int key)
      : now_(now),
        next_(next),
        k_bytes_(p.head_dim_qk * kBytes),
        // Latent values are part of their keys.
        v_bytes_(p.kv.v == p.kv.k ? 0 : p.head_dim_vo * kBytes),
        key_(key) {}

  /// The rest is shared out over so many turns.
  void spread(std::int64_t turns) {
    turns_ = turns;
    left_ = 2 * kPanel - key_;
  }
  void turn() {
    for (due_ += left_; due_ >= turns_ && key_ < 2 * kPanel; due_ -= turns_) ask();
  }

  /// Asks for one key.
  void ask() {
    const dense::TileRows& keys = (key_ < kPanel ? now_ : next_)[key_ % kPanel / dense::kKeyTile];
    const int i = key_++ % dense::kKeyTile;
    if (i < keys.from || i >= keys.to) return;
    Io::prefetch_far(keys.k[i], k_bytes_);
    if (v_bytes_ > 0) Io::prefetch_far(keys.v[i], v_bytes_);
  }
  [[nodiscard]] int key() const { return key_; }

  /// The first keys of an item, counted from its first panel's first, before anything else is done:
  /// nobody has asked for them. Queries and sums are made ready meanwhile.
  static void ask_first(const dense::Params& p, const dense::Item& item, int count) {
    constexpr int kSub = dense::kKeyTile;
    const std::int64_t panel = item.kv_begin / (kSubs * kSub) * (kSubs * kSub);
    for (std::int64_t first = panel; first < panel + count && first < item.kv_end; first += kSub) {
      if (first + kSub <= item.kv_begin) continue;
      dense::TileRows keys;
      Io::template locate<kSub>(p, item, first, keys);
      for (int i = keys.from; i < keys.to && first + i < panel + count; ++i) {
        Io::prefetch_far(keys.k[i], p.head_dim_qk * kBytes);
        if (p.kv.v != p.kv.k) Io::prefetch_far(keys.v[i], p.head_dim_vo * kBytes);
      }
    }
  }

 private:
  static constexpr int kPanel = kSubs * dense::kKeyTile;

  const dense::TileRows (&now_)[kSubs];
  const dense::TileRows (&next_)[kSubs];
  std::int64_t k_bytes_;
  std::int64_t v_bytes_;
  std::int64_t turns_ = 1;
  std::int64_t left_ = 0;
  std::int64_t due_ = 0;
  int key_;
};

}  // namespace attune::kernels::ragged_prefill
