#include "cache/kv_move.hpp"

#include <cstddef>
#include <cstring>

#include "base/join.hpp"

namespace attune::cache {
namespace {

/// A token's bytes: `pieces` runs of `bytes`, `piece` bytes apart.
struct TokenLayout {
  std::int64_t page_size = 1;
  std::int64_t page = 0;   ///< bytes between pages
  std::int64_t token = 0;  ///< bytes between tokens of a page
  std::int64_t piece = 0;
  std::int64_t pieces = 1;
  std::int64_t bytes = 0;

  [[nodiscard]] std::byte* at(void* data, std::int64_t slot) const {
    return static_cast<std::byte*>(data) + slot / page_size * page + slot % page_size * token;
  }
};

TokenLayout layout_of(const TensorView& cache, KvLayout layout) {
  const auto size = static_cast<std::int64_t>(size_of(cache.dtype));
  const bool heads_outside = layout == KvLayout::hnd;
  const int token_axis = heads_outside ? 2 : 1;
  const int head_axis = heads_outside ? 1 : 2;
  const bool latent = cache.rank == 3;  // one head without an axis
  const auto axis = [](int a) { return static_cast<std::size_t>(a); };
  return {.page_size = cache.shape[axis(token_axis)],
          .page = cache.stride[0] * size,
          .token = cache.stride[axis(token_axis)] * size,
          .piece = latent ? 0 : cache.stride[axis(head_axis)] * size,
          .pieces = latent ? 1 : cache.shape[axis(head_axis)],
          .bytes = cache.shape[axis(cache.rank - 1)] * size};
}

}  // namespace

void path_moves(std::span<const std::int32_t> path, std::int64_t context_len,
                const RequestPages& pages, std::int32_t page_size, std::vector<SlotMove>& moves) {
  moves.clear();
  for (std::size_t i = 0; i < path.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    if (path[i] == place) continue;
    moves.push_back({.from = pages.slot(context_len + path[i], page_size),
                     .to = pages.slot(context_len + place, page_size)});
  }
}

Status move_tokens(const TensorView& cache, KvLayout layout, std::span<const SlotMove> moves) {
  if (cache.rank < 3)
    return invalid_argument(base::join("a cache tensor of rank ", cache.rank, ", wanted 3 or 4"));
  const TokenLayout token = layout_of(cache, layout);
  const std::int64_t slots = cache.shape[0] * token.page_size;
  for (const SlotMove& move : moves)
    if (move.from < 0 || move.from >= slots || move.to < 0 || move.to >= slots)
      return invalid_argument(base::join("a move from slot ", move.from, " to ", move.to,
                                         " in a cache of ", slots, " slots"));
  for (const SlotMove& move : moves) {
    if (move.from == move.to) continue;
    const std::byte* const from = token.at(cache.data, move.from);
    std::byte* const to = token.at(cache.data, move.to);
    for (std::int64_t n = 0; n < token.pieces; ++n)
      std::memcpy(to + n * token.piece, from + n * token.piece,
                  static_cast<std::size_t>(token.bytes));
  }
  return {};
}

}  // namespace attune::cache
