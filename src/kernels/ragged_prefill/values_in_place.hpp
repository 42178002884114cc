// Values multiplied where they lie in their pages, keys by dims (layer kernels). A tile of B holds
// pairs along what is summed, here keys, so values would have to be packed two keys a cell. Instead
// a row of a tile is 32 numbers of one key, cells of an even and an odd dim, and weights come
// twice: against zeros in the odd places they give the sums of even dims, and the other way round.
// Twice the products, of which a few rows have few, and nothing is packed.
#pragma once

#include <cstdint>

#include "kernels/tile/product.hpp"

namespace attune::kernels::ragged_prefill {

template <class Unit>
struct ValuesInPlace {
  using V = typename Unit::V;
  using Number = typename Unit::Number;
  /// Of one group of 16 keys: a tile of weights for even dims, one for odd ones.
  static constexpr std::int64_t kGroupNumbers = 2 * tile::kTileNumbers;

  /// Row `row` of the weights of `keys` keys, a multiple of 16.
  static void spread(const Number* weights, int keys, int row, Number* groups) {
    for (int key = 0; key < keys; key += tile::kSide) {
      Number* const even = groups + key / tile::kSide * kGroupNumbers + row * tile::kDepth;
      V::spread_pairs(weights + key, even, even + tile::kTileNumbers);
    }
  }

  /// A row of o as it is summed, of every 32 dims the even ones, then the odd ones; and in order.
  static void split(float* o, std::int64_t dims) {
    for (std::int64_t d = 0; d < dims; d += 2 * tile::kSide) V::split_even_odd(o + d);
  }
  static void join(float* o, std::int64_t dims) {
    for (std::int64_t d = 0; d < dims; d += 2 * tile::kSide) V::join_even_odd(o + d);
  }
};

}  // namespace attune::kernels::ragged_prefill
