// The batches that prefill_bench checks and times.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/cuda/tile_shape.hpp"
#include "kernels/ragged_prefill/sm90/launch.hpp"

namespace attune::bench {

inline std::vector<Shape> awkward(const kernels::ragged_prefill::sm90::Instance& c) {
  const int a = c.head_dim_qk, b = c.head_dim_vo;
  std::vector<Shape> out;
  const auto add = [&](Shape s) {
    s.dqk = a;
    s.dvo = b;
    out.push_back(s);
  };
  const int page = c.gather ? 3 : 16;
  if (c.boxes) {
    add({.name = "ragged causal gqa4",
         .qo_len = {1, 64, 129, 300, 0, 77},
         .kv_len = {1, 64, 129, 300, 5, 77},
         .qo_heads = 8,
         .kv_heads = 2});
    add({.name = "ragged full odd",
         .qo_len = {65, 130, 1},
         .kv_len = {257, 3, 500},
         .qo_heads = 3,
         .kv_heads = 3,
         .causal = false});
    add({.name = "ragged long q, empty kv",
         .qo_len = {200, 40, 10},
         .kv_len = {50, 0, 10},
         .qo_heads = 4,
         .kv_heads = 4});
    add({.name = "ragged large logits",
         .qo_len = {260},
         .kv_len = {600},
         .qo_heads = 4,
         .kv_heads = 2,
         .amplitude = 3});
    add({.name = "ragged packed gqa4",
         .qo_len = {1, 33, 90},
         .kv_len = {70, 33, 500},
         .qo_heads = 8,
         .kv_heads = 2,
         .pack = 2});
    add({.name = "page 64 hnd",
         .qo_len = {100, 128},
         .kv_len = {300, 640},
         .qo_heads = 4,
         .kv_heads = 2,
         .page = 64,
         .hnd = true});
    add({.name = "page 256",
         .qo_len = {100, 128},
         .kv_len = {300, 700},
         .qo_heads = 4,
         .kv_heads = 2,
         .page = 256});
  }
  add({.name = "paged causal",
       .qo_len = {31, 128, 200, 1},
       .kv_len = {100, 128, 777, 33},
       .qo_heads = 6,
       .kv_heads = 2,
       .page = page});
  add({.name = "paged full",
       .qo_len = {31, 128},
       .kv_len = {100, 513},
       .qo_heads = 4,
       .kv_heads = 1,
       .causal = false,
       .page = page});
  add({.name = "paged window",
       .qo_len = {300, 64},
       .kv_len = {700, 64},
       .qo_heads = 4,
       .kv_heads = 2,
       .page = page,
       .window_left = 100});
  add({.name = "paged cap sinks",
       .qo_len = {150},
       .kv_len = {333},
       .qo_heads = 4,
       .kv_heads = 2,
       .page = page,
       .soft_cap = 30,
       .sinks = true,
       .amplitude = 2});
  // More items than a card has multiprocessors: every ring goes round.
  add({.name = "paged, many items",
       .qo_len = {300, 5, 500, 64, 1},
       .kv_len = {300, 700, 901, 64, 90},
       .qo_heads = 32,
       .kv_heads = 8,
       .page = page});
  if (c.gather)
    add({.name = "page 1",
         .qo_len = {150, 3},
         .kv_len = {333, 9},
         .qo_heads = 4,
         .kv_heads = 2,
         .page = 1});
  return out;
}

inline std::vector<Shape> table() {
  const auto equal = [](const char* name, int requests, int length, int heads, int kv_heads,
                        int dqk, int dvo, bool causal) {
    return Shape{.name = name,
                 .qo_len = std::vector<int>(static_cast<std::size_t>(requests), length),
                 .kv_len = std::vector<int>(static_cast<std::size_t>(requests), length),
                 .qo_heads = heads,
                 .kv_heads = kv_heads,
                 .dqk = dqk,
                 .dvo = dvo,
                 .causal = causal};
  };
  return {equal("causal 32/8 d128 16x1k", 16, 1024, 32, 8, 128, 128, true),
          equal("causal 32/8 d128 4x4k", 4, 4096, 32, 8, 128, 128, true),
          equal("causal 32/8 d128 1x16k", 1, 16384, 32, 8, 128, 128, true),
          equal("full 16/16 d128 1x16k", 1, 16384, 16, 16, 128, 128, false),
          equal("causal 32/32 d64 1x16k", 1, 16384, 32, 32, 64, 64, true),
          equal("causal 8/8 d256 1x16k", 1, 16384, 8, 8, 256, 256, true),
          equal("causal 128/128 192/128 2x8k", 2, 8192, 128, 128, 192, 128, true)};
}

inline double flop(const Shape& s) {
  double pairs = 0;
  for (std::size_t i = 0; i < s.qo_len.size(); ++i)
    pairs += static_cast<double>(s.qo_len[i]) * s.kv_len[i] * (s.causal ? 0.5 : 1.0);
  return 2.0 * pairs * s.qo_heads * (s.dqk + s.dvo);
}

}  // namespace attune::bench
