// What every form of decode does around its products (layer kernels): an item's tiles in order, of
// each the scores, the weights and the values of all its KV heads, in the order of addresses, with
// requests for what comes next (fetch.hpp).
//
// Math holds the item's queries, scores and weights, and multiplies:
//
//   Math(p, item, scratch)         queries as it wants them
//   score(run, n)                  KV head n of the item
//   weigh(row, keys, rule, …)      weights of a row from its scores; what o shrinks by
//   add_values(run, n)
//   release()                      optional: nothing is multiplied from now on
//   restore(row)                   o of a row in the order of its columns
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/paged_decode/fetch.hpp"
#include "kernels/softmax/online_softmax.hpp"

namespace attune::kernels::paged_decode {

/// Keys of a run: enough for one reduction of all lanes, and for o to stay in registers a while.
inline constexpr int kSpan = 16;

template <class Unit, DType T>
struct Loop {
  using V = typename Unit::V;
  using Io = dense::RowIo<Unit, T>;
  using Softmax = softmax::OnlineSoftmax<Unit>;
  using Side = typename Fetch<V>::Side;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;

  template <class Math>
  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    char* const base = static_cast<char*>(scratch);
    auto* const o = reinterpret_cast<float*>(base + p.scratch.o);
    auto* const maximum = reinterpret_cast<float*>(base + p.scratch.maximum);
    auto* const sum = reinterpret_cast<float*>(base + p.scratch.sum);
    const int rows = item.num_heads;
    const int group = p.gqa_group_size;
    const std::int64_t o_stride = p.scratch.o_stride;

    Math math(p, item, scratch);
    for (int r = 0; r < rows; ++r) maximum[r] = softmax::kNone;
    for (std::int64_t i = 0; i < rows * kLanes; i += kLanes) V::store(sum + i, V::zero());
    for (std::int64_t i = 0; i < rows * o_stride; i += kLanes) V::store(o + i, V::zero());

    typename Fetch<V>::template Walk<kSpan> walk(item.num_kv_heads, p.head_dim_qk * kBytes);
    const auto keys_of = [&p](const dense::TileRows& t) {
      return Side{t.k, t.from, t.to, p.kv.k_head_stride * kBytes, p.head_dim_qk * kBytes};
    };
    const auto values_of = [&p](const dense::TileRows& t) {
      return Side{t.v, t.from, t.to, p.kv.v_head_stride * kBytes, p.head_dim_vo * kBytes};
    };
    dense::TileRows tiles[2];
    std::int64_t tile = item.kv_begin / kTile * kTile;
    locate(p, item, tile, base, 0, tiles[0]);
    for (int now = 0; tile < item.kv_end; tile += kTile, now ^= 1) {
      locate(p, item, tile + kTile, base, now ^ 1, tiles[now ^ 1]);
      const dense::TileRows& keys = tiles[now];
      const dense::TileRows& then = tiles[now ^ 1];
      walk.enter(keys_of(keys), values_of(keys), keys_of(then), values_of(then));
      for (int span = keys.from / kSpan * kSpan; span < keys.to; span += kSpan)
        for (int n = 0; n < item.num_kv_heads; ++n) math.score(walk.next(), n);
      for (int n = 0; n < item.num_kv_heads; ++n) {
        softmax::RowRule rule = Io::common_rule(p, item, item.kv_head + n);
        for (int row = n * group; row < (n + 1) * group; ++row) {
          Io::set_rule(p, item, 0, row, tile, keys.from, keys.to, rule);
          const float shrink = math.weigh(row, keys.to, rule, maximum[row], sum + row * kLanes);
          if (shrink != 1.0f) Softmax::scale(o + row * o_stride, o_stride, shrink);
        }
      }
      for (int span = keys.from / kSpan * kSpan; span < keys.to; span += kSpan)
        for (int n = 0; n < item.num_kv_heads; ++n) math.add_values(walk.next(), n);
    }
    if constexpr (requires { math.release(); }) math.release();
    for (int r = 0; r < rows; ++r) {
      math.restore(r);
      Io::finish(p, item, r, o + r * o_stride, maximum[r], sum + r * kLanes);
    }
  }

  /// Beyond a tile's ends a real row stands in, whose products are hidden and whose weights are 0.
  static void stand_in(dense::TileRows& rows) {
    for (int i = 0; i < rows.from; ++i) {
      rows.k[i] = rows.k[rows.from];
      rows.v[i] = rows.v[rows.from];
    }
    for (int i = rows.to; i < kTile; ++i) {
      rows.k[i] = rows.k[rows.to - 1];
      rows.v[i] = rows.v[rows.to - 1];
    }
  }

 private:
  /// Rows of the tile at key index `tile`.
  static void locate(const dense::Params& p, const dense::Item& item, std::int64_t tile,
                     char* scratch, int turn, dense::TileRows& rows) {
    if (tile >= item.kv_end) {
      rows.from = rows.to = 0;
      return;
    }
    Io::find(p, item, tile, scratch, turn, rows);
    stand_in(rows);
  }
};

}  // namespace attune::kernels::paged_decode
