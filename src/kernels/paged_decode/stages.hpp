// The stages of decode on tiles, and what each asks memory for (layer kernels). A stage is one KV head
// and 64 keys of an item: four spans of 16 keys, so four pages of memory, of which a line is asked for
// in turn (fetch.hpp says why four). Where a token's heads lie side by side a head's rows are far
// apart: each stage asks for its share of the next tile instead, token by token, as far as the second
// cache.
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/paged_decode/loop.hpp"
#include "kernels/simd/unroll.hpp"
#include "kernels/tile/product.hpp"

namespace attune::kernels::paged_decode {

struct Stage {
  const dense::TileRows* rows = nullptr;
  std::int64_t tile = 0;  ///< key index
  int head = 0;           ///< of the item's KV heads
  int held = 0;           ///< place of the rows
};

/// kDims: of both keys and values, where known.
template <class Unit, DType T, int kDims>
class Stages {
  using V = typename Unit::V;
  using Io = dense::RowIo<Unit, T>;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr int kSpans = kTile / kSpan;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;
  static constexpr std::int64_t kLine = tile::kLine;

 public:
  /// Keys or values of a stage.
  struct Side {
    const char* const* rows = nullptr;  ///< [kTile]
    std::int64_t offset = 0;            ///< bytes from the item's first KV head
    std::int64_t bytes = 0;             ///< of a row

    [[nodiscard]] const char* row(int i) const { return rows[i] + offset; }
  };

  Stages(const dense::Params& p, const dense::Item& item)
      : p_(p),
        item_(item),
        side_by_side_(item.num_kv_heads > 1 && p.kv.k_head_stride == p.head_dim_qk &&
                      p.kv.v_head_stride == p.head_dim_vo),
        found_(item.kv_begin / kTile * kTile) {
    if (item.kv_begin < item.kv_end) locate(found_, held_[0]);
  }
  [[nodiscard]] Stage first() const { return {.rows = &held_[0], .tile = found_}; }

  /// Whether there is a stage after `s`, which it becomes.
  bool advance(Stage& s) {
    if (s.head + 1 < item_.num_kv_heads) {
      ++s.head;
      return true;
    }
    return advance_tile(s);
  }
  /// The first stage of the next tile; `s` itself where there is none, and where nobody asks.
  Stage tile_after(const Stage& s) {
    Stage after = s;
    if (side_by_side_) advance_tile(after);
    return after;
  }

  [[nodiscard]] Side keys_of(const Stage& s) const { return keys_of(s, s.head); }
  [[nodiscard]] Side values_of(const Stage& s) const { return values_of(s, s.head); }

  /// Row `row` of each span of `soon`'s keys; or of `then`'s share of the tile `after` its own.
  [[gnu::always_inline]] void ask_keys(const Stage& soon, const Stage& then, const Stage& after,
                                       int row) const {
    if (!side_by_side_) return ask<Near::first>(keys_of(soon), row);
    const int n = then.head * kSpan + row;
    ask<Near::second>(keys_of(after, n % item_.num_kv_heads), n / item_.num_kv_heads);
  }
  [[gnu::always_inline]] void ask_values(const Stage& soon, const Stage& then, const Stage& after,
                                         int row) const {
    if (!side_by_side_) return ask<Near::first>(values_of(soon), row);
    const int n = then.head * kSpan + row;
    ask<Near::second>(values_of(after, n % item_.num_kv_heads), n / item_.num_kv_heads);
  }
  /// What nobody will have asked for when an item begins: the first stage's keys, or its tile's.
  void ask_first_keys() const {
    const Stage s = first();
    for (int head = 0; head < (side_by_side_ ? item_.num_kv_heads : 1); ++head)
      for (int row = 0; row < kSpan; ++row) ask<Near::first>(keys_of(s, head), row);
  }
  void ask_first_values() const {
    const Stage s = first();
    for (int head = 0; head < (side_by_side_ ? item_.num_kv_heads : 1); ++head)
      for (int row = 0; row < kSpan; ++row) ask<Near::first>(values_of(s, head), row);
  }

 private:
  /// The cache that rows are asked into.
  enum class Near : std::uint8_t { first, second };
  static constexpr int kHeld = 3;  ///< tiles: of a stage, the next one and the one after

  void locate(std::int64_t tile, dense::TileRows& rows) const {
    Io::template locate<kTile>(p_, item_, tile, rows);
    Loop<Unit, T>::stand_in(rows);
  }
  bool advance_tile(Stage& s) {
    if (s.tile + kTile >= item_.kv_end) return false;
    s.tile += kTile;
    s.head = 0;
    s.held = (s.held + 1) % kHeld;
    s.rows = &held_[s.held];
    // Stages to come are looked up more than once.
    if (s.tile > found_) locate(found_ = s.tile, held_[s.held]);
    return true;
  }

  [[nodiscard]] Side keys_of(const Stage& s, int head) const {
    return {s.rows->k, head * p_.kv.k_head_stride * kBytes,
            (kDims > 0 ? kDims : p_.head_dim_qk) * kBytes};
  }
  [[nodiscard]] Side values_of(const Stage& s, int head) const {
    return {s.rows->v, head * p_.kv.v_head_stride * kBytes,
            (kDims > 0 ? kDims : p_.head_dim_vo) * kBytes};
  }

  /// A line of each span's row in turn.
  template <Near kNear>
  [[gnu::always_inline]] static void ask(const Side& side, int row) {
    const char* at[kSpans];
    simd::unroll<kSpans>([&](auto s) { at[s] = side.row(s * kSpan + row); });
    for (std::int64_t byte = 0; byte < side.bytes; byte += kLine) {
      simd::unroll<kSpans>([&](auto s) {
        if constexpr (kNear == Near::first)
          V::prefetch(at[s] + byte);
        else
          V::prefetch_far(at[s] + byte);
      });
    }
  }

  const dense::Params& p_;
  const dense::Item& item_;
  const bool side_by_side_;  ///< a token's heads
  std::int64_t found_;       ///< the last tile whose rows are held
  dense::TileRows held_[kHeld];
};

}  // namespace attune::kernels::paged_decode
