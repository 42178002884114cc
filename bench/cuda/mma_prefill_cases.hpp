// The batches that attune_mma_prefill_bench checks and times.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/cuda/paged_shape.hpp"

namespace attune::bench {

inline std::vector<Shape> awkward(int dim_qk, int dim_vo) {
  std::vector<Shape> out{
      {.name = "causal gqa4 page 16",
       .qo_len = {2, 64, 129, 300, 0, 77},
       .kv_len = {2, 64, 129, 300, 5, 77},
       .page = 16},
      {.name = "full odd page 1",
       .qo_len = {65, 130, 1},
       .kv_len = {257, 3, 500},
       .page = 1,
       .causal = false},
      {.name = "more queries than keys",
       .qo_len = {200, 40, 10},
       .kv_len = {50, 0, 10},
       .kv_heads = 32},
      {.name = "split keys page 3",
       .qo_len = {5, 2},
       .kv_len = {3000, 1777},
       .qo_heads = 6,
       .kv_heads = 2,
       .page = 3},
      {.name = "window 100 sinks",
       .qo_len = {300, 64},
       .kv_len = {700, 64},
       .window_left = 100,
       .sinks = true},
      {.name = "cap 30 hnd",
       .qo_len = {150},
       .kv_len = {333},
       .page = 32,
       .hnd = true,
       .soft_cap = 30},
      {.name = "alibi", .qo_len = {150, 3}, .kv_len = {333, 900}, .alibi = true},
      {.name = "custom mask", .qo_len = {70, 9, 1}, .kv_len = {333, 900, 65}, .custom_mask = true},
      {.name = "gqa 3", .qo_len = {100, 30}, .kv_len = {500, 30}, .qo_heads = 9, .kv_heads = 3},
      {.name = "gqa 71", .qo_len = {40}, .kv_len = {200}, .qo_heads = 71, .kv_heads = 1},
      {.name = "many items",
       .qo_len = std::vector<int>(24, 256),
       .kv_len = std::vector<int>(24, 512)},
  };
  for (Shape& s : out) {
    s.dim_qk = dim_qk;
    s.dim_vo = dim_vo;
  }
  return out;
}

inline std::vector<Shape> cases() {
  const auto equal = [](Shape s, int requests, int length) {
    s.qo_len = s.kv_len = std::vector<int>(std::size_t(requests), length);
    return s;
  };
  const auto append = [](Shape s, int requests, int qo_len, int kv_len) {
    s.qo_len = std::vector<int>(std::size_t(requests), qo_len);
    s.kv_len = std::vector<int>(std::size_t(requests), kv_len);
    return s;
  };
  Shape mixed{.name = "mixed 1x4k prefill + 63 x 1 over 4k"};
  mixed.qo_len = std::vector<int>(64, 1);
  mixed.kv_len = std::vector<int>(64, 4096);
  mixed.qo_len[0] = 4096;
  return {
      equal({.name = "d128 16x1k"}, 16, 1024),
      equal({.name = "d128 4x4k"}, 4, 4096),
      equal({.name = "d128 1x16k"}, 1, 16384),
      equal({.name = "d64 1x16k", .dim_qk = 64, .dim_vo = 64}, 1, 16384),
      equal({.name = "d256 1x16k", .qo_heads = 8, .dim_qk = 256, .dim_vo = 256}, 1, 16384),
      equal({.name = "d192/128 2x4k", .qo_heads = 32, .kv_heads = 32, .dim_qk = 192}, 2, 4096),
      equal({.name = "d192 4x4k", .dim_qk = 192, .dim_vo = 192}, 4, 4096),
      equal({.name = "d80 4x4k", .dim_qk = 80, .dim_vo = 80}, 4, 4096),
      equal({.name = "d96 4x4k", .dim_qk = 96, .dim_vo = 96}, 4, 4096),
      equal({.name = "d128 mha 4x4k", .qo_heads = 16, .kv_heads = 16}, 4, 4096),
      equal({.name = "d128 page1 4x4k", .page = 1}, 4, 4096),
      equal({.name = "d64 sinks 4x4k", .qo_heads = 64, .dim_qk = 64, .dim_vo = 64, .sinks = true},
            4, 4096),
      equal({.name = "d128 alibi 4x4k", .alibi = true}, 4, 4096),
      equal({.name = "d128 cap 4x4k", .soft_cap = 50}, 4, 4096),
      equal({.name = "d128 mask 4x4k", .causal = false, .custom_mask = true}, 4, 4096),
      append({.name = "append 32x16 over 4k"}, 32, 16, 4096),
      append({.name = "append 8x128 over 8k"}, 8, 128, 8192),
      append({.name = "verify 64x4 over 4k"}, 64, 4, 4096),
      mixed,
  };
}

/// Long enough for keys to be copied first.
inline std::vector<Shape> copied(int dim_qk, int dim_vo) {
  std::vector<Shape> out{
      {.name = "page 1", .page = 1},
      {.name = "page 5 hnd", .page = 5, .hnd = true},
      {.name = "page 64", .page = 64},
      {.name = "page 16 hnd", .page = 16, .hnd = true},
      {.name = "page 1 cap window", .page = 1, .window_left = 500, .soft_cap = 30},
      {.name = "page 64 full, more queries", .page = 64, .causal = false},
  };
  for (Shape& s : out) {
    s.qo_len = s.kv_len = {1025, 1, 513, 64, 0, 700, 2};
    if (!s.causal) s.kv_len[2] = 5;
    s.kv_len[4] = 77;
    s.qo_heads = 16;
    s.kv_heads = 4;
    s.dim_qk = dim_qk;
    s.dim_vo = dim_vo;
    s.hopper = true;
  }
  return out;
}

/// Where flashinfer chooses between keys as they are stored and copied ones.
inline std::vector<Shape> hopper_cases() {
  const Shape heads[] = {
      {.name = "d64", .dim_qk = 64, .dim_vo = 64},
      {.name = "d128"},
      {.name = "d256", .qo_heads = 16, .dim_qk = 256, .dim_vo = 256},
      {.name = "d192/128", .kv_heads = 32, .dim_qk = 192},
  };
  struct Lengths {
    const char* name;
    int requests, qo_len, kv_len;
  };
  constexpr Lengths kLengths[] = {
      {"16x1k", 16, 1024, 1024},     {"4x4k", 4, 4096, 4096},       {"1x16k", 1, 16384, 16384},
      {"1x512", 1, 512, 512},        {"1x2k", 1, 2048, 2048},       {"8x128 over 8k", 8, 128, 8192},
      {"1x16 over 512", 1, 16, 512}, {"8x16 over 1k", 8, 16, 1024}, {"1x128 over 1k", 1, 128, 1024},
      {"4x64 over 2k", 4, 64, 2048}, {"1x8 over 8k", 1, 8, 8192},
  };
  std::vector<Shape> out;
  for (const Lengths& l : kLengths)
    for (Shape s : heads) {
      s.name += std::string(" ") + l.name;
      s.qo_len = std::vector<int>(std::size_t(l.requests), l.qo_len);
      s.kv_len = std::vector<int>(std::size_t(l.requests), l.kv_len);
      out.push_back(s);
    }
  return out;
}

}  // namespace attune::bench
