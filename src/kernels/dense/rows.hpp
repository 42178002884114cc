// What the dense bodies share around their products (layer kernels): queries in, outputs out, rules
// of a row, and where the keys of a tile lie.
#pragma once

#include <cmath>
#include <cstdint>

#include <attune/tensor.hpp>

#include "attention/packed_latent.hpp"
#include "kernels/dense/params.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/softmax/online_softmax.hpp"

namespace attune::kernels::dense {

/// Addresses of the keys and values of one tile. Slots outside [from, to) hold nullptr.
struct TileRows {
  const char* k[kKeyTile];
  const char* v[kKeyTile];
  int from = 0;
  int to = 0;
};

template <class Unit, DType T>
struct RowIo {
  using V = typename Unit::V;
  using F = typename Unit::F;
  using Number = typename Unit::Number;
  static constexpr int kLanes = V::kLanes;

  /// The tile that starts at key index `tile`, clipped to the item's keys; addresses of the item's
  /// first KV head.
  template <int kKeys>
  static void locate(const Params& p, const Item& item, std::int64_t tile, TileRows& rows) {
    const std::int64_t begin = tile > item.kv_begin ? tile : item.kv_begin;
    const std::int64_t end = tile + kKeys < item.kv_end ? tile + kKeys : item.kv_end;
    rows.from = static_cast<int>(begin - tile);
    rows.to = static_cast<int>(end - tile);
    for (int i = 0; i < rows.from; ++i) rows.k[i] = rows.v[i] = nullptr;
    for (int i = rows.to; i < kKeys; ++i) rows.k[i] = rows.v[i] = nullptr;

    const attention::PagedKv& kv = p.kv;
    const char* const k =
        static_cast<const char*>(kv.k) + item.kv_head * kv.k_head_stride * kBytes<T>;
    const char* const v =
        static_cast<const char*>(kv.v) + item.kv_head * kv.v_head_stride * kBytes<T>;
    const std::int64_t first_entry = kv.indptr[item.request];
    std::int64_t entry = first_entry + begin / kv.page_size;
    std::int64_t token = begin % kv.page_size;
    for (int i = rows.from; i < rows.to;) {
      const std::int64_t page = kv.indices != nullptr ? kv.indices[entry] : entry;
      const char* const k_page = k + page * kv.k_page_stride * kBytes<T>;
      const char* const v_page = v + page * kv.v_page_stride * kBytes<T>;
      for (; token < kv.page_size && i < rows.to; ++token, ++i) {
        rows.k[i] = k_page + token * kv.k_token_stride * kBytes<T>;
        rows.v[i] = v_page + token * kv.v_token_stride * kBytes<T>;
      }
      token = 0;
      ++entry;
    }
  }

  /// The same wherever keys lie: tokens of the fp8 latent cache become rows of bf16 in the thread's
  /// own memory. `turn`, 0 or 1: neighbouring tiles are held at once.
  static void find(const Params& p, const Item& item, std::int64_t tile, char* scratch, int turn,
                   TileRows& rows) {
    if constexpr (T == DType::bf16) {
      if (p.packed_latents) {
        constexpr std::int64_t kTileBytes = kKeyTile * kWidenedRow;
        return widen(p, item, tile, scratch + p.scratch.widened + turn * kTileBytes, rows);
      }
    }
    locate<kKeyTile>(p, item, tile, rows);
  }

  /// Asks for a row that is read soon.
  [[gnu::always_inline]] static void prefetch(const void* row, std::int64_t bytes) {
    const char* const p = static_cast<const char*>(row);
    for (std::int64_t i = 0; i < bytes; i += 64) V::prefetch(p + i);
  }
  /// Likewise, but only as far as the second-level cache.
  [[gnu::always_inline]] static void prefetch_far(const void* row, std::int64_t bytes) {
    const char* const p = static_cast<const char*>(row);
    for (std::int64_t i = 0; i < bytes; i += 64) V::prefetch_far(p + i);
  }

  /// Queries as numbers of the unit, [rows, q_stride], zero beyond head_dim_qk.
  static void load_queries(const Params& p, const Item& item, Number* out) {
    if constexpr (Unit::kPair == 2) {
      load_queries_as<DType::bf16>(p, item, out);
    } else {
      switch (p.q.dtype) {
        case DType::f32: return load_queries_as<DType::f32>(p, item, out);
        case DType::bf16: return load_queries_as<DType::bf16>(p, item, out);
        default: return load_queries_as<DType::f16>(p, item, out);
      }
    }
  }

  /// What all rows of one KV head have in common.
  static softmax::RowRule common_rule(const Params& p, const Item& item, int kv_head) {
    softmax::RowRule rule;
    rule.scale = p.logit_scale;
    if (p.k_scale_per_head != nullptr) rule.scale *= p.k_scale_per_head[kv_head];
    rule.cap = p.logits_soft_cap;
    rule.mod = p.score_mod;
    if (p.custom_mask != nullptr) rule.bits = p.custom_mask + p.custom_mask_indptr[item.request];
    return rule;
  }

  /// The rule of one row for the tile that starts at key index `tile` and holds keys [from, to).
  static void set_rule(const Params& p, const Item& item, std::int64_t token_in_item,
                       std::int64_t head_in_item, std::int64_t tile, int from, int to,
                       softmax::RowRule& rule) {
    const std::int64_t token = item.first_token + token_in_item;
    if (p.temperature != nullptr) rule.temperature = p.temperature[token];
    if (p.alibi_slopes != nullptr) {
      rule.slope = p.alibi_slopes[item.first_head + head_in_item];
      rule.distance = static_cast<float>(p.key_position[token] - tile);
    }
    rule.from = clip(p.visible[token].begin - tile, from, to);
    rule.to = clip(p.visible[token].end - tile, rule.from, to);
    if (p.custom_mask != nullptr)
      rule.first_bit = (item.request_token + token_in_item) * item.kv_len + tile;
    const std::int64_t head = item.first_head + head_in_item;
    if (p.block_mask.given()) hide_by_block(p, item, token_in_item, head, tile, rule);
    if (p.score_mod != nullptr) {
      const std::int64_t first = p.first_position[item.request];
      rule.pair = {.request = item.request,
                   .qo_head = static_cast<int>(head),
                   .q_position = first + p.key_position[token],
                   .kv_position = first + tile};
    }
  }

  /// The first tile at or behind `tile` of which some row of the item sees a key, as far as blocks of
  /// a mask tell; kv_end or more if none.
  static std::int64_t seen_from(const Params& p, const Item& item, std::int64_t tile) {
    if (!p.block_mask.given()) return tile;
    const int heads = p.block_mask.num_heads == 1 ? 1 : item.num_heads;
    const std::int64_t last = item.request_token + item.num_tokens - 1;
    for (; tile < item.kv_end; tile += kKeyTile)
      for (int h = 0; h < heads; ++h)
        for (std::int64_t query = item.request_token / kMaskBlock * kMaskBlock; query <= last;
             query += kMaskBlock)
          if (block_of(p, item, item.first_head + h, query, tile) != kHiddenBlock) return tile;
    return tile;
  }

  /// Normalises one row and writes it to its place, final or partial.
  static void finish(const Params& p, const Item& item, std::int64_t row, const float* o,
                     float maximum, const float* sums) {
    const float sum = V::sum(V::load(sums));
    const bool empty = sum == 0.0f;
    // A logarithm takes as long as the rest of a row: not where nobody asks.
    const bool asked = item.partial_row >= 0 || p.lse != nullptr || p.sinks != nullptr;
    const float lse = empty || !asked ? softmax::kNone : (maximum + ::log2f(sum)) * softmax::kLn2;
    float factor = empty ? 0.0f : 1.0f / sum;
    if (item.partial_row >= 0) {
      const std::int64_t at =
          item.partial_row + row / item.num_heads * item.partial_stride + row % item.num_heads;
      p.partial_lse[at] = lse;
      write<DType::f32>(p.partial_o + at * p.head_dim_vo, o, factor, p.head_dim_vo);
      return;
    }
    const std::int64_t token = item.first_token + row / item.num_heads;
    const auto head = item.first_head + row % item.num_heads;
    factor *= p.v_scale;
    if (p.v_scale_per_head != nullptr) factor *= p.v_scale_per_head[head / p.gqa_group_size];
    if (p.sinks != nullptr && !empty) factor /= 1.0f + ::expf(p.sinks[head] - lse);
    if (p.lse != nullptr) p.lse[token * p.lse_token_stride + head * p.lse_head_stride] = lse;
    const std::int64_t at = token * p.o.token_stride + head * p.o.head_stride;
    switch (p.o.dtype) {
      case DType::f32:
        return write<DType::f32>(static_cast<float*>(p.o.data) + at, o, factor, p.head_dim_vo);
      case DType::bf16:
        return write<DType::bf16>(static_cast<std::uint16_t*>(p.o.data) + at, o, factor,
                                  p.head_dim_vo);
      default:
        return write<DType::f16>(static_cast<std::uint16_t*>(p.o.data) + at, o, factor,
                                 p.head_dim_vo);
    }
  }

 private:
  static constexpr std::int64_t kWidenedRow =
      2 * (attention::packed_latent::kLatents + attention::packed_latent::kRope);

  static void widen(const Params& p, const Item& item, std::int64_t tile, char* room,
                    TileRows& rows) {
    namespace packed = attention::packed_latent;
    const std::int64_t begin = tile > item.kv_begin ? tile : item.kv_begin;
    const std::int64_t end = tile + kKeyTile < item.kv_end ? tile + kKeyTile : item.kv_end;
    rows.from = static_cast<int>(begin - tile);
    rows.to = static_cast<int>(end - tile);
    for (int i = 0; i < kKeyTile; ++i) rows.k[i] = rows.v[i] = nullptr;

    const attention::PagedKv& kv = p.kv;
    const auto token_at = [&](std::int64_t key) {
      const std::int64_t entry = kv.indptr[item.request] + key / kv.page_size;
      return static_cast<const char*>(kv.k) + kv.indices[entry] * kv.k_page_stride +
             key % kv.page_size * kv.k_token_stride;
    };
    constexpr std::int64_t kAhead = 4;
    for (std::int64_t key = begin; key < end; ++key) {
      if (key + kAhead < end) prefetch(token_at(key + kAhead), packed::kTokenBytes);
      const char* const token = token_at(key);
      char* const row = room + (key - tile) * kWidenedRow;
      for (int block = 0; block < packed::kScales; ++block) {
        float scale;
        __builtin_memcpy(&scale, token + packed::kScalesAt + block * sizeof scale, sizeof scale);
        const F times = V::set(scale);
        for (int d = block * packed::kScaleBlock; d < (block + 1) * packed::kScaleBlock;
             d += kLanes)
          V::template store_as_n<DType::bf16>(
              row + 2 * d, V::mul(V::template load_as<DType::fp8_e4m3>(token + d), times), kLanes);
      }
      __builtin_memcpy(row + 2 * packed::kLatents, token + packed::kRopeAt, 2 * packed::kRope);
      rows.k[key - tile] = rows.v[key - tile] = row;
    }
  }

  static std::int32_t block_of(const Params& p, const Item& item, std::int64_t head,
                               std::int64_t query, std::int64_t tile) {
    return p.block_mask.row(item.request, head, query, item.kv_len)[tile / kMaskBlock];
  }

  static void hide_by_block(const Params& p, const Item& item, std::int64_t token_in_item,
                            std::int64_t head, std::int64_t tile, softmax::RowRule& rule) {
    static_assert(kMaskBlock % kKeyTile == 0, "a tile lies in one block");
    const std::int64_t query = item.request_token + token_in_item;
    const std::int32_t block = block_of(p, item, head, query, tile);
    rule.bits = nullptr;
    if (block == kHiddenBlock) {
      rule.to = rule.from;
    } else if (block != kWholeBlock) {
      rule.bits = p.block_mask.bits_of(block);
      rule.first_bit = attention::BlockTable::first_bit(query, tile);
    }
  }

  static int clip(std::int64_t x, int low, int high) {
    return x < low ? low : x > high ? high : static_cast<int>(x);
  }

  static constexpr std::int64_t kTokensAhead = 6;

  template <DType Q>
  static void load_queries_as(const Params& p, const Item& item, Number* out) {
    const char* const q = static_cast<const char*>(p.q.data);
    for (std::int64_t t = 0; t < item.num_tokens; ++t) {
      for (std::int64_t h = 0; h < item.num_heads; ++h) {
        const char* const in = q + ((item.first_token + t) * p.q.token_stride +
                                    (item.first_head + h) * p.q.head_stride) *
                                       kBytes<Q>;
        // Heads lie side by side, tokens do not.
        if (t + kTokensAhead < item.num_tokens)
          prefetch(in + kTokensAhead * p.q.token_stride * kBytes<Q>, p.head_dim_qk * kBytes<Q>);
        for (std::int64_t d = 0; d < p.scratch.q_stride; d += Unit::kNumbers) {
          const std::int64_t left = p.head_dim_qk - d;
          const int n = left < 0                ? 0
                        : left > Unit::kNumbers ? Unit::kNumbers
                                                : static_cast<int>(left);
          Unit::store(out + d, Unit::template load_as_n<Q>(in + d * kBytes<Q>, n));
        }
        out += p.scratch.q_stride;
      }
    }
  }

  template <DType O>
  static void write(void* to, const float* o, float factor, std::int64_t dims) {
    char* const out = static_cast<char*>(to);
    const F times = V::set(factor);
    for (std::int64_t d = 0; d < dims; d += kLanes) {
      const int n = dims - d < kLanes ? static_cast<int>(dims - d) : kLanes;
      V::template store_as_n<O>(out + d * kBytes<O>, V::mul(V::load(o + d), times), n);
    }
  }
};

}  // namespace attune::kernels::dense
