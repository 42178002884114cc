// A token's list for a KV head, and the threads that work on it.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/block_lists/sm80/launch.hpp"

namespace attune::kernels::block_lists::sm80 {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Integers in the order of the numbers; 0 is below all of them.
__device__ __forceinline__ unsigned rank_of(float x) {
  if (!(x == x)) x = -INFINITY;
  const unsigned bits = __float_as_uint(x + 0.0f);  // -0 becomes 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

struct List {
  std::int32_t* blocks = nullptr;  ///< the caller's
  std::int32_t* pages = nullptr;
  std::int32_t* kept = nullptr;
  const std::int32_t* entries = nullptr;  ///< of the request
  int visible = 0;
  int num_blocks = 0;  ///< that the token sees
  int thread = 0;      ///< of those that work on the list …
  int threads = kThreads;
};

/// `row`: of a launch, token by token, head by head.
__device__ __forceinline__ List list_of(const Params& p, int row, int thread, int threads) {
  const std::int64_t token = p.first_token + row / p.num_heads;
  const int head = row % p.num_heads;
  const std::int64_t list = token * p.num_heads + head;
  const int visible = p.visible[token];
  return {.blocks = p.lists + token * p.lists_token_stride + head * p.lists_head_stride,
          .pages = p.pages + list * p.pages_stride,
          .kept = p.kept + list,
          .entries = p.kv_indices + p.entry_begin[token],
          .visible = visible,
          .num_blocks = (visible + p.block_size - 1) / p.block_size,
          .thread = thread,
          .threads = threads};
}

/// Blocks that no score decides: all where they are as few as the list holds, the first and the last
/// elsewhere.
__device__ __forceinline__ void put_kept_always(const Params& p, const List& list,
                                                std::int32_t* blocks) {
  const bool all = list.num_blocks <= p.topk;
  const int first = all ? list.num_blocks : p.init_blocks;
  const int last = all ? 0 : p.local_blocks;
  for (int i = list.thread; i < first; i += list.threads) blocks[i] = i;
  for (int i = list.thread; i < last; i += list.threads)
    blocks[p.topk - last + i] = list.num_blocks - last + i;
}

/// The caller's list: `count` blocks, then -1.
__device__ __forceinline__ void write_list(const Params& p, const List& list,
                                           const std::int32_t* blocks, int count) {
  for (int i = list.thread; i < p.topk; i += list.threads)
    list.blocks[i] = i < count ? blocks[i] : -1;
}

/// Where the keys of `count` blocks, ascending, lie.
__device__ __forceinline__ void write_pages(const Params& p, const List& list,
                                            const std::int32_t* blocks, int count) {
  const auto parts =
      static_cast<int>(base::divide(static_cast<std::uint32_t>(p.block_size), p.part));
  for (int i = list.thread; i < count * parts; i += list.threads) {
    const int n = i / parts;
    const int key = blocks[n] * p.block_size + (i - n * parts) * static_cast<int>(p.part.divisor);
    if (key >= list.visible) continue;
    const auto entry = static_cast<int>(base::divide(static_cast<std::uint32_t>(key), p.page));
    const std::uint32_t place =
        static_cast<std::uint32_t>(key) - static_cast<std::uint32_t>(entry) * p.page.divisor;
    list.pages[i] =
        list.entries[entry] * p.parts_of_page + static_cast<int>(base::divide(place, p.part));
  }
  if (list.thread != 0) return;
  const int last = count == 0 ? 0 : blocks[count - 1] * p.block_size;
  *list.kept = count == 0 ? 0 : (count - 1) * p.block_size + min(p.block_size, list.visible - last);
}

}  // namespace attune::kernels::block_lists::sm80
