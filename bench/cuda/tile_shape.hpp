// What a batch is to prefill_bench: lengths, heads, dims, pages and options.
#pragma once

#include <string>
#include <vector>

namespace attune::bench {

struct Shape {
  std::string name;
  std::vector<int> qo_len, kv_len;
  int qo_heads = 1, kv_heads = 1, dqk = 128, dvo = 128;
  bool causal = true;
  int page = 0;  // 0 = ragged
  bool hnd = false;
  int window_left = -1;
  float soft_cap = 0;
  bool sinks = false;
  float amplitude = 1;
  int pack = 0;
};

}  // namespace attune::bench
